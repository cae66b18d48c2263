// What adapters add to the sums of a product x · Wᵀ (LowRank in runtime/graph/graph.h). lowRank(row, n): of the row-th row of x, and
// row n of W, or, with LOW_RANK_VEC, rows n … n + 3.
// Bindings: low_rank_t [rows, PARTS, ADAPTERS, RANK], read as vectors of four; low_rank_b [ADAPTERS, RANK, low_rank_n], with LOW_RANK_VEC
// as vectors of four. Parameters: low_rank_n (rows of W), low_rank_first1 … (of the parts but the first), low_rank_scale0 …
// Defines: LOW_RANK_PARTS, LOW_RANK_ADAPTERS, LOW_RANK (of every adapter; a multiple of 4), LOW_RANK_VEC.
#if LOW_RANK_VEC
alias LowRankSum = vec4f;
const kLowRankColumns = 4u;
#else
alias LowRankSum = f32;
const kLowRankColumns = 1u;
#endif
fn lowRank(row: u32, n: u32) -> LowRankSum {
  const quads = ${LOW_RANK}u / 4u;
  var part = 0u;
#for p 1 LOW_RANK_PARTS
  part += select(0u, 1u, n >= params.low_rank_first${p});
#endfor
  let first = (row * ${LOW_RANK_PARTS}u + part) * (${LOW_RANK_ADAPTERS}u * quads);
  let stride = params.low_rank_n / kLowRankColumns;
  let column = n / kLowRankColumns;
  var sum = LowRankSum();
#for a 0 LOW_RANK_ADAPTERS
  {
    var products = LowRankSum();
    for (var c = 0u; c < quads; c++) {
      let t = vec4f(low_rank_t[first + ${a}u * quads + c]);
      let at = (${a}u * ${LOW_RANK}u + 4u * c) * stride + column;
      products += t.x * low_rank_b[at] + t.y * low_rank_b[at + stride] + t.z * low_rank_b[at + 2u * stride] +
                  t.w * low_rank_b[at + 3u * stride];
    }
    sum += params.low_rank_scale${a} * products;
  }
#endfor
  return sum;
}
