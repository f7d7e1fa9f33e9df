/* Who has the memory: preloaded into a process, counts the bytes that each of its libraries has allocated, not freed.
 *
 * Model. A block belongs to the library from which malloc() or operator new was called; what inlined code of the C++
 * library allocates is the caller's, its strings are the C++ library's own. Each block has 16 bytes in front of it that
 * remember whose it is: they are not counted. The file that OVSDR_MEMORY names is mapped, and holds the counts as they
 * are at any moment: a struct counts. A process that is executed in this one's place starts the file anew.
 *
 * What the process maps by itself (stacks, DPDK's pools) is nobody's here.
 *
 * Threads: any. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { N_OWNERS = 8, N_SHARDS = 32, N_RANGES = 512, NAME_SIZE = 56 };

/* Counts of a thread may be below zero: it frees what others have allocated. */
struct shard {
    _Alignas(64) _Atomic int64_t bytes[N_OWNERS];
};

struct counts {
    char names[N_OWNERS][NAME_SIZE];
    struct shard shards[N_SHARDS];
};

static struct counts before_start;
static struct counts *counts = &before_start;

/* Libraries by the first word that their path contains; the last is everything else. */
static const struct {
    const char *word, *name;
} owners[N_OWNERS] = {
    {"", "the daemon itself: offload/ and ctrl/"},   /* dl_iterate_phdr() has no name for it */
    {"libopenvswitch", "Open vSwitch"},
    {"libofproto", "Open vSwitch"},
    {"libibverbs", "the NIC's library"},
    {"libmlx5", "the NIC's library"},
    {"libstdc++", "strings of C++"},
    {"libc.so", "libc"},
    {NULL, "other libraries"},
};

struct header {
    uint64_t size;
    uint32_t owner;
    uint32_t offset;    /* From the block that libc knows. */
};
_Static_assert(sizeof(struct header) == 16, "blocks are aligned to 16 bytes");

static struct range {
    uintptr_t first, last;
    unsigned int owner;
} ranges[N_RANGES];
static atomic_uint n_ranges;
static atomic_flag adding = ATOMIC_FLAG_INIT;

static unsigned int
owner_named(const char *path)
{
    if (!path[0]) {
        return 0;
    }
    for (unsigned int i = 1; i < N_OWNERS - 1; i++) {
        if (strstr(path, owners[i].word)) {
            return i;
        }
    }
    return N_OWNERS - 1;
}

struct search {
    uintptr_t address;
    struct range found;
};

static int
look_into(struct dl_phdr_info *info, size_t size, void *search_)
{
    struct search *search = search_;

    (void) size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t last = first + info->dlpi_phdr[i].p_memsz;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && search->address >= first && search->address < last) {
            search->found = (struct range) {first, last, owner_named(info->dlpi_name)};
            return 1;
        }
    }
    return 0;
}

static unsigned int
owner_of(const void *caller)
{
    struct search search = {.address = (uintptr_t) caller, .found = {0, 0, N_OWNERS - 1}};
    unsigned int n = atomic_load_explicit(&n_ranges, memory_order_acquire);

    for (unsigned int i = 0; i < n; i++) {
        if (search.address >= ranges[i].first && search.address < ranges[i].last) {
            return ranges[i].owner;
        }
    }
    if (dl_iterate_phdr(look_into, &search) && !atomic_flag_test_and_set(&adding)) {
        n = atomic_load(&n_ranges);
        if (n < N_RANGES) {
            ranges[n] = search.found;
            atomic_store_explicit(&n_ranges, n + 1, memory_order_release);
        }
        atomic_flag_clear(&adding);
    }
    return search.found.owner;
}

static void
count(unsigned int owner, int64_t bytes)
{
    static atomic_uint next_shard;
    static __thread unsigned int shard __attribute__((tls_model("initial-exec")));

    if (!shard) {
        shard = 1 + atomic_fetch_add(&next_shard, 1) % N_SHARDS;
    }
    atomic_fetch_add_explicit(&counts->shards[shard - 1].bytes[owner], bytes, memory_order_relaxed);
}

static void *
allocate(size_t alignment, size_t size, const void *caller)
{
    size_t offset = alignment > sizeof(struct header) ? alignment : sizeof(struct header);
    char *block;
    struct header *header;

    if (size > PTRDIFF_MAX - offset) {
        errno = ENOMEM;
        return NULL;
    }
    block = offset == sizeof *header ? __libc_malloc(size + offset) : __libc_memalign(alignment, size + offset);
    if (!block) {
        return NULL;
    }
    header = (struct header *) (block + offset) - 1;
    *header = (struct header) {size, owner_of(caller), (uint32_t) offset};
    count(header->owner, (int64_t) size);
    return header + 1;
}

#define CALLER __builtin_return_address(0)

void
free(void *memory)
{
    struct header *header = (struct header *) memory - 1;

    if (memory) {
        count(header->owner, -(int64_t) header->size);
        __libc_free((char *) memory - header->offset);
    }
}

void *malloc(size_t size) { return allocate(0, size, CALLER); }

static void *
zeroed(size_t length, size_t size, const void *caller)
{
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(length, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    memory = allocate(0, bytes, caller);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *calloc(size_t length, size_t size) { return zeroed(length, size, CALLER); }

void *
realloc(void *old, size_t size)
{
    void *memory = allocate(0, size, CALLER);

    if (memory && old) {
        size_t old_size = ((struct header *) old - 1)->size;

        memcpy(memory, old, old_size < size ? old_size : size);
        free(old);
    }
    return memory;
}

void *memalign(size_t alignment, size_t size) { return allocate(alignment, size, CALLER); }
void *aligned_alloc(size_t alignment, size_t size) { return allocate(alignment, size, CALLER); }
void *valloc(size_t size) { return allocate((size_t) sysconf(_SC_PAGESIZE), size, CALLER); }

int
posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = allocate(alignment, size, CALLER);
    return *memory ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *memory) { return memory ? ((struct header *) memory - 1)->size : 0; }

/* operator new and new[]: the C++ library's would be the caller of malloc() otherwise. Nothing here throws: a process
 * without memory ends. */
static void *
must(void *memory)
{
    if (!memory) {
        abort();
    }
    return memory;
}

void *_Znwm(size_t size) { return must(allocate(0, size, CALLER)); }
void *_Znam(size_t size) { return must(allocate(0, size, CALLER)); }
void *_ZnwmSt11align_val_t(size_t size, size_t alignment) { return must(allocate(alignment, size, CALLER)); }
void *_ZnamSt11align_val_t(size_t size, size_t alignment) { return must(allocate(alignment, size, CALLER)); }
void *_ZnwmRKSt9nothrow_t(size_t size, const void *tag) { (void) tag; return allocate(0, size, CALLER); }
void *_ZnamRKSt9nothrow_t(size_t size, const void *tag) { (void) tag; return allocate(0, size, CALLER); }

__attribute__((constructor)) static void
start(void)
{
    const char *path = getenv("OVSDR_MEMORY");
    int file = path ? open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;

    if (file < 0) {
        return;
    }
    if (!ftruncate(file, sizeof *counts)) {
        struct counts *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

        if (shared != MAP_FAILED) {
            for (unsigned int i = 0; i < N_OWNERS; i++) {
                strncpy(shared->names[i], owners[i].name, NAME_SIZE - 1);
            }
            memcpy(shared->shards, before_start.shards, sizeof shared->shards);
            counts = shared;
        }
    }
    close(file);
}
