// A std::shared_mutex that those who share it cannot keep others out of.
//
// Glibc's std::shared_mutex lets readers in while a writer waits: two threads that share it again and again, without a
// pause, can keep a writer out for ever. Here nobody gets in to share it while somebody waits to own it.
//
// Nobody takes it twice: a thread that shares it and wants to share it again may wait for a writer who waits for it.
#pragma once

#include <pthread.h>

namespace ovsdr {

class WriterFirstMutex {
public:
    void lock() noexcept { pthread_rwlock_wrlock(&lock_); }
    void unlock() noexcept { pthread_rwlock_unlock(&lock_); }
    void lock_shared() noexcept { pthread_rwlock_rdlock(&lock_); }
    void unlock_shared() noexcept { pthread_rwlock_unlock(&lock_); }

private:
    pthread_rwlock_t lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
};

}  // namespace ovsdr
