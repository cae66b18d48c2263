// Reductions over a workgroup of WG invocations (a power of two, at most 256). Every invocation must call (uniform control flow)
// and gets the result. Right for any subgroup size; the subgroup tier assumes that subgroups are consecutive invocations.
// Needs: SUBGROUPS, WG. The kernel's entry point has `@builtin(local_invocation_index) li: u32` and, with SUBGROUPS,
// `@builtin(subgroup_size) sg_size: u32`; without it passes any number for sg_size.
var<workgroup> reduce_partial: array<f32, ${WG}>;

#if SUBGROUPS
fn workgroupSum(value: f32, li: u32, sg_size: u32) -> f32 {
  let partial = subgroupAdd(value);
  workgroupBarrier();  // the array may still be read by a reduction before
  if (li % sg_size == 0u) { reduce_partial[li / sg_size] = partial; }
  workgroupBarrier();
  // every subgroup adds up all partial sums, so that none waits for another
  var sum = 0.0;
  for (var i = li % sg_size; i < (${WG}u + sg_size - 1u) / sg_size; i += sg_size) { sum += reduce_partial[i]; }
  return subgroupAdd(sum);
}
fn workgroupMax(value: f32, li: u32, sg_size: u32) -> f32 {
  let partial = subgroupMax(value);
  workgroupBarrier();
  if (li % sg_size == 0u) { reduce_partial[li / sg_size] = partial; }
  workgroupBarrier();
  var result = reduce_partial[0];
  for (var i = li % sg_size; i < (${WG}u + sg_size - 1u) / sg_size; i += sg_size) { result = max(result, reduce_partial[i]); }
  return subgroupMax(result);
}
#else
fn workgroupSum(value: f32, li: u32, sg_size: u32) -> f32 {
  workgroupBarrier();  // the array may still be read by a reduction before
  reduce_partial[li] = value;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step) { reduce_partial[li] += reduce_partial[li + step]; }
    workgroupBarrier();
  }
  return reduce_partial[0];
}
fn workgroupMax(value: f32, li: u32, sg_size: u32) -> f32 {
  workgroupBarrier();
  reduce_partial[li] = value;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step) { reduce_partial[li] = max(reduce_partial[li], reduce_partial[li + step]); }
    workgroupBarrier();
  }
  return reduce_partial[0];
}
#endif
