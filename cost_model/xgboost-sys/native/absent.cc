// Definitions for the parts of XGBoost that are left out of this library.
//
// Training on one machine never leaves the paths below by more than a query ("is this a distributed run? no"), so
// the communicator is a group of one. Every other function here reports the missing feature as an ordinary XGBoost
// error: the C API turns it into a non-zero return code and a message.
#include <dmlc/data.h>
#include <dmlc/io.h>
#include <dmlc/registry.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/broadcast.h"
#include "collective/comm.h"
#include "collective/comm_group.h"
#include "collective/communicator-inl.h"
#include "common/cache_manager.h"
#include "predictor/interpretability/shap.h"
#include "xgboost/collective/result.h"
#include "xgboost/collective/socket.h"
#include "xgboost/logging.h"

#define AUTOTUNE_ABSENT(feature) LOG(FATAL) << feature " is not part of this build of XGBoost"

namespace xgboost::collective {
namespace {
// The only member of its group.
class SoloComm : public HostComm {
 public:
  [[nodiscard]] bool IsFederated() const override { return false; }
  [[nodiscard]] Result LogTracker(std::string msg) const override {
    LOG(CONSOLE) << msg;
    return Success();
  }
  [[nodiscard]] Result ProcessorName(std::string* out) const override {
    out->clear();
    return Success();
  }
  [[nodiscard]] Result Block() const override { return Success(); }
  [[nodiscard]] Result Shutdown() override { return Success(); }
  [[nodiscard]] Comm* MakeCUDAVar(Context const*, std::shared_ptr<Coll>) const override {
    AUTOTUNE_ABSENT("CUDA");
    return nullptr;
  }
};
}  // namespace

CommGroup::CommGroup() : comm_{std::make_shared<SoloComm>()} {}

std::shared_ptr<Coll> CommGroup::Backend(DeviceOrd) const {
  AUTOTUNE_ABSENT("Distributed training");
  return backend_;
}

Comm const& CommGroup::Ctx(Context const*, DeviceOrd) const { return *comm_; }

std::unique_ptr<CommGroup>& GlobalCommGroup() {
  static thread_local auto group = std::make_unique<CommGroup>();
  return group;
}

std::int32_t GetRank() noexcept { return 0; }
std::int32_t GetWorldSize() noexcept { return 1; }
bool IsDistributed() noexcept { return false; }
bool IsFederated() { return false; }
void Print(std::string const& message) { LOG(CONSOLE) << message; }

Result Loop::Block() {
  AUTOTUNE_ABSENT("Distributed training");
  return Success();
}

void SafeColl(Result const& rc, char const*, std::int32_t) {
  if (!rc.OK()) {
    LOG(FATAL) << rc.Report();
  }
}

Result GetHostName(std::string*) {
  AUTOTUNE_ABSENT("Distributed training");
  return Success();
}

namespace detail {
std::string ResultImpl::Report() const { return message; }

std::string MakeMsg(std::string&& msg, char const* file, std::int32_t line) {
  return std::string{file} + ":" + std::to_string(line) + ": " + msg;
}
}  // namespace detail

namespace cpu_impl {
Result Broadcast(Comm const&, common::Span<std::int8_t>, std::int32_t) {
  AUTOTUNE_ABSENT("Distributed training");
  return Success();
}
}  // namespace cpu_impl
}  // namespace xgboost::collective

namespace xgboost::common {
// The fallback sizes of the header: what is detected only tunes prediction on many threads.
CacheManager::CacheManager() { this->SetDefaultCaches(); }
}  // namespace xgboost::common

namespace xgboost::data {
std::string ValidateFileFormat(std::string const& uri);
std::string ValidateFileFormat(std::string const&) {
  AUTOTUNE_ABSENT("Reading text files");
  return {};
}
}  // namespace xgboost::data

namespace dmlc {
Stream* Stream::Create(char const*, char const* const, bool) {
  AUTOTUNE_ABSENT("File access");
  return nullptr;
}

template <>
Parser<std::uint32_t, float>* Parser<std::uint32_t, float>::Create(char const*, unsigned, unsigned,
                                                                   char const*) {
  AUTOTUNE_ABSENT("Reading text files");
  return nullptr;
}
}  // namespace dmlc

namespace xgboost::interpretability::cpu_impl {
void ShapValues(Context const*, DMatrix*, HostDeviceVector<float>*, gbm::GBTreeModel const&, bst_tree_t,
                std::vector<float> const*, int, unsigned) {
  AUTOTUNE_ABSENT("Prediction of feature contributions");
}
void ApproxFeatureImportance(Context const*, DMatrix*, HostDeviceVector<float>*, gbm::GBTreeModel const&,
                             bst_tree_t, std::vector<float> const*) {
  AUTOTUNE_ABSENT("Prediction of feature contributions");
}
void ShapInteractionValues(Context const*, DMatrix*, HostDeviceVector<float>*, gbm::GBTreeModel const&,
                           bst_tree_t, std::vector<float> const*, bool) {
  AUTOTUNE_ABSENT("Prediction of feature contributions");
}
}  // namespace xgboost::interpretability::cpu_impl

// XGBoost refers to one tag per file that registers something, so that static linking keeps the file. These are the
// tags of the files left out; what they would have registered is then an unknown name, reported as such.
namespace xgboost::data {
DMLC_REGISTRY_FILE_TAG(gradient_index_format);
DMLC_REGISTRY_FILE_TAG(sparse_page_raw_format);
}  // namespace xgboost::data
namespace xgboost::gbm {
DMLC_REGISTRY_FILE_TAG(gblinear);
}  // namespace xgboost::gbm
namespace xgboost::metric {
DMLC_REGISTRY_FILE_TAG(auc);
DMLC_REGISTRY_FILE_TAG(elementwise_metric);
DMLC_REGISTRY_FILE_TAG(multiclass_metric);
DMLC_REGISTRY_FILE_TAG(rank_metric);
DMLC_REGISTRY_FILE_TAG(survival_metric);
}  // namespace xgboost::metric
namespace xgboost::obj {
DMLC_REGISTRY_FILE_TAG(hinge_obj);
DMLC_REGISTRY_FILE_TAG(multiclass_obj);
DMLC_REGISTRY_FILE_TAG(quantile_obj);
}  // namespace xgboost::obj
namespace xgboost::tree {
DMLC_REGISTRY_FILE_TAG(updater_approx);
DMLC_REGISTRY_FILE_TAG(updater_colmaker);
DMLC_REGISTRY_FILE_TAG(updater_prune);
DMLC_REGISTRY_FILE_TAG(updater_refresh);
}  // namespace xgboost::tree
