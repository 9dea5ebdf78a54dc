// Walks a model's weights in the order of the forward pass, lays them out, copies.
#include "model/upload.h"

#include <fmt/format.h>

#include <map>

namespace hadal {
namespace {

constexpr int64_t kAlign = 256;  // bytes; equal tensors of a list stay at equal distances

// The tensors of a model, lists as all data and then all scales.
class Walk {
 public:
  std::vector<Tensor*> tensors;

  void add(Tensor& t) {
    if (!t.empty()) tensors.push_back(&t);
  }
  void add(Weight& w) {
    add(w.data);
    add(w.scale);
  }
  void add(std::vector<Weight>& list) {
    for (Weight& w : list) add(w.data);
    for (Weight& w : list) add(w.scale);
  }
  void add(HyperWeights& w) { all(w.fn, w.base, w.scale); }
  void add(ExpertWeights& w) { all(w.gate, w.up, w.down); }
  void add(MoeWeights& w) { all(w.router, w.bias, w.table, w.gate, w.up, w.down, w.shared); }
  void add(IndexerWeights& w) { all(w.wq_b, w.weights_proj, w.wk, w.k_norm, w.k_norm_bias); }
  void add(CompressorWeights& w) { all(w.wkv, w.wgate, w.ape, w.norm); }
  void add(V4Layer& w) {
    all(w.attn_norm, w.ffn_norm, w.attn_hc, w.ffn_hc, w.wq_a, w.wq_b, w.wkv, w.wo_b, w.wo_a,
        w.q_norm, w.kv_norm, w.attn_sink, w.compressor, w.indexer, w.indexer_compressor, w.moe);
  }
  void add(V32Layer& w) {
    all(w.input_norm, w.post_attention_norm, w.q_a, w.q_b, w.q_a_norm, w.kv_a, w.kv_a_norm, w.w_uk,
        w.w_uv, w.o, w.indexer, w.dense, w.moe);
  }
  template <class W>
  void add_model(W& w) {
    all(w.embed, w.head, w.norm);
    if constexpr (requires { w.hc_head; }) add(w.hc_head);
    for (auto& layer : w.layers) add(layer);
  }

 private:
  template <class... T>
  void all(T&... t) {
    (add(t), ...);
  }
};

// What makes two views the same bytes.
using Key = std::tuple<const void*, std::array<int64_t, Tensor::kMaxRank>>;
Key key_of(const Tensor& t) { return {t.data, t.shape}; }

// A packed view of the same shape at `data`.
Tensor packed_at(void* data, const Tensor& t) {
  Tensor p = t;
  p.data = data;
  int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    p.stride[i] = step;
    step *= t.shape[i];
  }
  return p;
}

void copy(Gpu& gpu, void* to, const Tensor& t) {
  if (t.packed()) return gpu.upload(to, t.data, t.bytes());
  HADAL_CHECK(t.rank == 2 && t.stride[1] == 1, "[upload] " + t.describe());
  int64_t size = dtype_size(t.dtype);
  gpu.upload(to, t.data, t.shape[1] * size, t.shape[0], t.stride[0] * size);
}

template <class W>
Result<GpuBuffer> upload(W& weights, Gpu& gpu, const Progress& progress) {
  Walk walk;
  walk.add_model(weights);
  std::map<Key, int64_t> offsets;
  int64_t total = 0, done = 0;
  for (const Tensor* t : walk.tensors)
    if (offsets.emplace(key_of(*t), total).second)
      total += (t->bytes() + kAlign - 1) / kAlign * kAlign;
  GpuBuffer memory(gpu, total);
  if (!memory.data())
    return Error{
        fmt::format("the weights take {:.1f} GB, {} has {:.1f} GB free: take more devices "
                    "or a smaller model",
                    total * 1e-9, gpu.name(), gpu.memory_bytes() * 1e-9)};
  std::map<Key, bool> copied;
  for (Tensor* t : walk.tensors) {
    char* to = memory.data() + offsets.at(key_of(*t));
    if (copied.emplace(key_of(*t), true).second) {
      copy(gpu, to, *t);
      done += (t->bytes() + kAlign - 1) / kAlign * kAlign;
      if (progress) progress(done, total);
    }
    *t = packed_at(to, *t);
  }
  gpu.wait();
  return memory;
}

}  // namespace

Result<GpuBuffer> upload_weights(V4Weights& w, Gpu& gpu, const Progress& progress) {
  return upload(w, gpu, progress);
}

Result<GpuBuffer> upload_weights(V32Weights& w, Gpu& gpu, const Progress& progress) {
  return upload(w, gpu, progress);
}

}  // namespace hadal
