/* A program that a network is linked with:
 *
 *   autotune compile dqn -o libdqn.so
 *   cc -O2 -fopenmp linked.c -L. -ldqn -Wl,-rpath,'$ORIGIN' -o linked
 *   ./linked
 */
#include <stdio.h>
#include <stdlib.h>

#include "dqn.h"

/* By the threads of OpenMP; without -fopenmp by one. */
static void parallel_for(void *context, size_t count, void (*task)(void *, size_t), void *argument) {
    (void)context;
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1)
#endif
    for (size_t i = 0; i < count; i++) task(argument, i);
}

int main(void) {
    /* One image, and memory for what the network makes of it. */
    size_t pixels = dqn_input_elements(0), actions = dqn_output_elements(0);
    float *image = malloc(pixels * sizeof *image), *values = malloc(actions * sizeof *values);
    void *workspace = aligned_alloc(64, (dqn_workspace_bytes() + 63) / 64 * 64);
    if (!image || !values || !workspace) return 1;
    for (size_t i = 0; i < pixels; i++) image[i] = (float)(i % 7) / 7;

    /* Once for every thread that runs the network. */
    int error = dqn_init(workspace);

    /* As often as there is an image: allocates nothing. */
    const float *inputs[] = {image};
    float *outputs[] = {values};
    if (error == DQN_OK) error = dqn_run(workspace, inputs, outputs, parallel_for, NULL);
    if (error != DQN_OK) {
        fprintf(stderr, "%s (it is for %s)\n", dqn_error(error), dqn_instruction_set());
        return 1;
    }

    for (size_t i = 0; i < actions; i++) printf("%s[%zu] = %.9g\n", dqn_output_name(0), i, values[i]);
    free(workspace);
    free(values);
    free(image);
    return 0;
}
