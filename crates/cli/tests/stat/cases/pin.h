// A thread that is pinned to a CPU, and one that keeps CPU 1 busy in the same address space.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static volatile int ready, over;

static void on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) _exit(77);
}
__attribute__((unused)) static void *busy(void *unused) {
    on(1);
    ready = 1;
    while (!over)
        ;
    return unused;
}
