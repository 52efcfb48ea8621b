// Runs a library for CUDA devices in two threads, each twice, and writes the outputs of all runs.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small.h"

static const float *input;

static void *thread(void *argument) {
  float *output = (float *)argument, *other = output + small_output_elements(0);
  void *workspace = aligned_alloc(64, (small_workspace_bytes() + 63) / 64 * 64);
  memset(workspace, 0, small_workspace_bytes());
  int error = small_run(workspace, &input, &output, NULL, NULL);
  if (error != SMALL_ERROR_NOT_INITIALISED) return (void *)"a workspace that is not initialised is used";
  error = small_init(workspace);
  if (error == SMALL_OK && small_run(workspace, &input, NULL, NULL, NULL) != SMALL_ERROR_TENSOR)
    return (void *)"outputs are missing";
  if (error == SMALL_OK) error = small_run(workspace, &input, &output, NULL, NULL);
  if (error == SMALL_OK) error = small_run(workspace, &input, &other, NULL, NULL);
  small_release(workspace);
  small_release(workspace);
  free(workspace);
  return (void *)(error == SMALL_OK ? NULL : small_error(error));
}

int main(int count, char **arguments) {
  const size_t inputs = small_input_elements(0), outputs = small_output_elements(0);
  if (count != 3 || small_inputs() != 1 || small_outputs() != 1 || small_input_rank(0) != 4 || small_input_name(1)) return 2;
  if (small_init(NULL) != SMALL_ERROR_WORKSPACE || small_error(-1) || small_threads() != 1) return 2;
  printf("%s %s %zu, %s: %s\n", small_input_name(0), small_input_type(0), small_input_shape(0)[1], small_output_name(0),
         small_instruction_set());

  float *numbers = malloc(sizeof(float) * (inputs + 4 * outputs)), *found = numbers + inputs;
  FILE *file = fopen(arguments[1], "rb");
  if (!file || fread(numbers, sizeof(float), inputs, file) != inputs) return 2;
  fclose(file);
  input = numbers;

  pthread_t threads[2];
  void *failed[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, thread, found + 2 * i * outputs);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], &failed[i]);
  for (int i = 0; i < 2; ++i)
    if (failed[i]) return fprintf(stderr, "%s\n", (const char *)failed[i]), 1;

  file = fopen(arguments[2], "wb");
  return !file || fwrite(found, sizeof(float), 4 * outputs, file) != 4 * outputs || fclose(file);
}
