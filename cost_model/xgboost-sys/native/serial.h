// Included at the head of every unit: this build has no OpenMP, all loops and sorts run on the calling thread. What
// XGBoost instantiates for many threads nevertheless is kept away from the compiler, which saves some of its time.
#pragma once
#include <dmlc/common.h>

#include "common/common.h"
#include "common/numeric.h"
#include "xgboost/context.h"
#include "xgboost/logging.h"
#include "xgboost/string_view.h"

// Sorting: libstdc++'s parallel mode is looked for on all systems but one.
#define sun 1
#include "common/algorithm.h"
#undef sun

namespace dmlc {
// Loops: the body is called out of line wherever a scheduling policy would apply, and inlined only where the loop is
// serial from the outset. An exception simply propagates: there is no parallel region that it must not leave.
class SerialException {
 public:
  template <typename Function>
  void Run(Function&& function) {
    function();
  }
  template <typename Function, typename Index>
  __attribute__((noinline)) void Run(Function& function, Index index) {
    function(index);
  }
  void Rethrow() {}
};
}  // namespace dmlc

#define OMPException SerialException
#include "common/threading_utils.h"
#undef OMPException
