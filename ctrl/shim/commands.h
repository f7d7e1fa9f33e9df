/* The unixctl commands dr/show, dr/ports and dr/explain. */
#ifndef CTRL_SHIM_COMMANDS_H
#define CTRL_SHIM_COMMANDS_H

void commands_register(void);

#endif
