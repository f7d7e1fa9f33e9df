"""The lab: namespaces, soft NIC, switch, traffic and captures, for the demo, the system tests and the benchmarks.

Everything that a lab makes lives in a Workspace, which has a unique name and undoes it all when it closes: after
success, failure and Ctrl-C. What a killed process left behind is undone by the next one.
"""
