// Included before data/data.cc: external memory and iterator-fed matrices are left out, so that asking for one is an
// error instead of a constructor that is missing at link time.
#pragma once
#include "data/extmem_quantile_dmatrix.h"
#include "data/iterative_dmatrix.h"
#include "data/simple_dmatrix.h"
#include "data/sparse_page_dmatrix.h"

namespace xgboost::data {
struct AbsentDMatrix : public SimpleDMatrix {
  template <typename... Args>
  explicit AbsentDMatrix(Args&&...) {
    LOG(FATAL) << "A DMatrix fed by callbacks is not part of this build of XGBoost";
  }
};
}  // namespace xgboost::data

#define ExtMemQuantileDMatrix AbsentDMatrix
#define IterativeDMatrix AbsentDMatrix
#define SparsePageDMatrix AbsentDMatrix
