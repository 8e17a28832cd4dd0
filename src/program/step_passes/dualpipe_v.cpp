// DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe, dualpipev.py): DualPipe's schedule (DeepSeek-V3, arXiv 2412.19437,
// section 3.2.1) with one copy of the parameters: two chunks in the shape of a V in place of two directions. Where the
// authors overlap a forward with a backward, the two follow each other here; their overlap hides the transfers of experts.
// A full backward is B and, right behind it, W.
#include "program/step_passes/step_passes.hpp"

namespace foreplan {

namespace {

class Order {
public:
  void forward(int chunk) { add(SlotKind::forward, chunk, next_forward_[chunk]++); }

  void backward(int chunk, bool puts_off_w) {
    std::int64_t const j = next_backward_[chunk]++;
    add(SlotKind::backward, chunk, j);
    if (puts_off_w)
      put_off_.push_back({SlotKind::weight_gradient, Chunk(chunk), MicroBatch(j)});
    else
      add(SlotKind::weight_gradient, chunk, j);
  }

  void forward_and_backward(int chunk) {
    forward(chunk);
    backward(1 - chunk, false);
  }

  void weight_gradient() { work_.push_back(put_off_[first_left_++]); }

  std::vector<Work> take() { return std::move(work_); }

private:
  void add(SlotKind kind, int chunk, std::int64_t j) { work_.push_back({kind, Chunk(chunk), MicroBatch(j)}); }

  std::int64_t next_forward_[2]{};
  std::int64_t next_backward_[2]{};
  std::vector<Work> work_;
  std::vector<Work> put_off_;
  std::size_t first_left_ = 0;
};

} // namespace

std::vector<Work> dualpipe_v(Plan const& plan, Stage stage) {
  std::int64_t const m = plan.micro_batches(), behind = plan.pp - 1 - stage.value(), in_front = stage.value() + 1;
  auto const times = [](std::int64_t count, auto&& run) {
    for (std::int64_t i = 0; i < count; ++i)
      run(i);
  };
  Order order;
  times(2 * behind, [&](std::int64_t) { order.forward(0); });
  times(in_front, [&](std::int64_t) {
    order.forward(0);
    order.forward(1);
  });
  times(behind, [&](std::int64_t) {
    order.backward(1, true);
    order.weight_gradient();
    order.forward(1);
  });
  times(m - std::int64_t{2} * plan.pp + in_front, [&](std::int64_t) {
    order.forward_and_backward(0);
    order.forward_and_backward(1);
  });
  times(behind, [&](std::int64_t) {
    order.backward(1, false);
    order.forward_and_backward(1);
  });
  bool puts_off = false; // in the second half
  times(in_front, [&](std::int64_t i) {
    bool const half = i == in_front / 2;
    puts_off = puts_off || (half && stage.value() % 2 == 1);
    order.backward(1, puts_off);
    puts_off = puts_off || half;
    order.backward(0, puts_off);
  });
  times(behind, [&](std::int64_t) {
    order.weight_gradient();
    order.backward(0, true);
  });
  times(in_front, [&](std::int64_t) { order.weight_gradient(); });
  return order.take();
}

} // namespace foreplan
