#include "validate/devices/cpu/gemm.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <omp.h>

#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>

namespace foreplan::cpu {
namespace {

dnnl::memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return dnnl::memory::data_type::bf16;
    case DType::fp32: return dnnl::memory::data_type::f32;
    default: throw std::runtime_error("matrix products take bf16 and fp32, not " + std::string(to_string(dtype)));
  }
}

dnnl::memory::desc description(Matrix const& matrix) {
  dnnl::memory::dims const strides = matrix.transposed ? dnnl::memory::dims{1, matrix.stride}
                                                       : dnnl::memory::dims{matrix.stride, 1};
  return {{matrix.rows, matrix.columns}, type_of(matrix.dtype), strides};
}

// Everything of a product but its addresses.
using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool,
                         DType, DType, bool, int>;

Shape shape_of(Matrix const& a, Matrix const& b, Matrix const& c, bool accumulate, int threads) {
  return {a.rows,       b.columns,    a.columns, a.stride, b.stride,   c.stride,
          a.transposed, b.transposed, a.dtype,   c.dtype,  accumulate, threads};
}

struct Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, c;
  std::unordered_map<int, dnnl::memory> arguments; // these three
};

dnnl::engine const& cpu_engine() {
  static dnnl::engine const engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

Product make_product(Matrix const& a, Matrix const& b, Matrix const& c, bool accumulate) {
  dnnl::engine const& engine = cpu_engine();
  dnnl::primitive_attr attributes;
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::desc const what(description(a), description(b), description(c));
  Product product{.primitive = dnnl::matmul({what, attributes, engine}),
                  .a = dnnl::memory(description(a), engine, nullptr),
                  .b = dnnl::memory(description(b), engine, nullptr),
                  .c = dnnl::memory(description(c), engine, nullptr),
                  .arguments = {}};
  product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
  return product;
}

} // namespace

void multiply(Matrix const& a, Matrix const& b, Matrix const& c, bool accumulate) {
  // Making a primitive takes about as long as a small product. A primitive is not to be run by two threads at once.
  thread_local std::map<Shape, Product> products;
  thread_local dnnl::stream stream(cpu_engine());
  int const threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  Shape const shape = shape_of(a, b, c, accumulate, threads);
  auto found = products.find(shape);
  if (found == products.end())
    found = products.emplace(shape, make_product(a, b, c, accumulate)).first;
  Product& product = found->second;
  product.a.set_data_handle(a.data);
  product.b.set_data_handle(b.data);
  product.c.set_data_handle(c.data);
  product.primitive.execute(stream, product.arguments);
}

std::string product_library() {
  dnnl_version_t const& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

} // namespace foreplan::cpu
