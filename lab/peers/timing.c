/* Timing loops of the peers that are called through C, so that no time of Python's is in theirs. */
#include <time.h>

typedef long (*call)(void *, void *, void *, void *);

/* Arguments of a row-major single-precision matrix product without transposition, C = A B, whose integers are 64 bits wide. */
struct sgemm {
    void (*function)(long, long, long, long, long, long, float, const float *, long, const float *, long, float, float *, long);
    long m, n, k;
    const float *a, *b;
    float *c;
};

/* For `time_calls`. */
long call_sgemm(struct sgemm *s, void *unused1, void *unused2, void *unused3) {
    enum { row_major = 101, no_transposition = 111 };
    s->function(row_major, no_transposition, no_transposition, s->m, s->n, s->k, 1.0f, s->a, s->k, s->b, s->n, 0.0f, s->c, s->n);
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Calls the function `runs` times, then `finish` once where there is one, and returns the seconds that took, or -1 if a
   call did not return 0. */
double time_calls(call function, void *a, void *b, void *c, void *d, call finish, void *e, long runs) {
    double start = now();
    for (long i = 0; i < runs; i++)
        if ((int)function(a, b, c, d) != 0) return -1;
    if (finish && (int)finish(e, 0, 0, 0) != 0) return -1;
    return now() - start;
}
