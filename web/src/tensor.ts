import { check } from './checks.js';
import { makeError } from './errors.js';
import type { GpuBuffer } from './gpu.js';
import { fromBf16, fromF16, toBf16, toF16 } from './half.js';

/** Element types by their names in the runtime. */
export type DType = 'u8' | 'i8' | 'i16' | 'i32' | 'i64' | 'f16' | 'f32' | 'f64' | 'bool' | 'bf16';

export type TensorData =
  Uint8Array | Int8Array | Int16Array | Uint16Array | Int32Array | BigInt64Array | Float32Array | Float64Array;

/**
 * A contiguous row-major tensor. `f16` and `bf16` are bits in a Uint16Array, `bool` is 0 and 1 in a Uint8Array.
 */
export interface Tensor {
  dtype: DType;
  shape: number[];
  data: TensorData;
}

/**
 * A contiguous row-major tensor in a buffer of the model's GPUDevice. `dtype` is that of the elements there: i32 stands for
 * i64, i16 and bool (0 and 1), and f16 for f32 where the model runs with `precision: 'f16'`.
 */
export interface GpuTensor {
  dtype: DType;
  shape: number[];
  buffer: GpuBuffer;
  /** In bytes, a multiple of 256. Default: 0. */
  offset?: number;
  /** Of outputs: the bytes of the tensor, in whole words. */
  size?: number;
}

/**
 * Where an output is wanted: as a Tensor (`cpu`), as a GpuTensor in the model's own memory, or as one in a buffer of
 * yours, from `offset` (a multiple of 256) on.
 */
export type OutputPlace = 'cpu' | 'gpu' | GpuBuffer | { buffer: GpuBuffer; offset?: number };

export function isGpuTensor(value: unknown): value is GpuTensor {
  return typeof value === 'object' && value !== null && 'dtype' in value && 'buffer' in value;
}

/** What a method takes and returns. Whole numbers are integers: a floating-point argument needs `{ float: 2 }`. */
export type Value = Tensor | number | { float: number } | boolean | string | null;

interface TypeInfo {
  number: number; // ExecuTorch's ScalarType
  bytes: number;
  view: new (buffer: ArrayBuffer, offset: number, length: number) => TensorData;
}
export const DTYPES: Record<DType, TypeInfo> = {
  u8: { number: 0, bytes: 1, view: Uint8Array },
  i8: { number: 1, bytes: 1, view: Int8Array },
  i16: { number: 2, bytes: 2, view: Int16Array },
  i32: { number: 3, bytes: 4, view: Int32Array },
  i64: { number: 4, bytes: 8, view: BigInt64Array },
  f16: { number: 5, bytes: 2, view: Uint16Array },
  f32: { number: 6, bytes: 4, view: Float32Array },
  f64: { number: 7, bytes: 8, view: Float64Array },
  bool: { number: 11, bytes: 1, view: Uint8Array },
  bf16: { number: 15, bytes: 2, view: Uint16Array },
};

/** @throws InvalidArgumentError for a typed array whose bits would be taken for something else. */
export function checkView(dtype: DType, data: TensorData): void {
  const { name } = DTYPES[dtype].view;
  const found = data[Symbol.toStringTag] as string; // an array of another frame has another constructor
  if (found.replace('Clamped', '') === name) return;
  throw makeError('invalid_argument', `a tensor of ${dtype} takes a ${name}, not a ${found}`);
}

/** @throws InvalidArgumentError for what is no shape. */
export function checkShape(name: string, shape: unknown): void {
  const fits = Array.isArray(shape) && shape.every((size) => Number.isInteger(size) && size >= 0);
  check(fits, name, shape ?? null, 'list of whole numbers from 0');
}

/**
 * A tensor from numbers: `tensor('i64', [1, 3], [1, 2, 3])`. Numbers become halves for `f16` and `bf16`; a typed array is
 * taken as it is, without a copy.
 * @throws InvalidArgumentError for an unknown dtype, a typed array of another class than the dtype's, and where the shape
 *   does not take that many numbers.
 */
export function tensor(dtype: DType, shape: number[], data: TensorData | readonly number[]): Tensor {
  if (!(dtype in DTYPES)) throw makeError('invalid_argument', `unknown dtype '${String(dtype)}'`);
  checkShape('shape', shape);
  const count = shape.reduce((a, b) => a * b, 1);
  if (data.length !== count) {
    throw makeError('invalid_argument', `a tensor [${shape.join(', ')}] has ${count} elements, not ${data.length}`);
  }
  if (ArrayBuffer.isView(data)) {
    checkView(dtype, data);
    return { dtype, shape, data };
  }
  if (dtype === 'i64') return { dtype, shape, data: BigInt64Array.from(data, (x) => BigInt(x)) };
  const out = new DTYPES[dtype].view(new ArrayBuffer(count * DTYPES[dtype].bytes), 0, count);
  const convert = dtype === 'f16' ? toF16 : dtype === 'bf16' ? toBf16 : dtype === 'bool' ? Number : undefined;
  for (let i = 0; i < count; ++i) out[i] = (convert ? convert(data[i] as number) : data[i]) as never;
  return { dtype, shape, data: out };
}

/** The elements as numbers, whatever the dtype; an i64 beyond 2^53 loses digits. */
export function toNumbers({ dtype, data }: Tensor): number[] {
  const convert = dtype === 'f16' ? fromF16 : dtype === 'bf16' ? fromBf16 : Number;
  return Array.from(data as ArrayLike<number | bigint>, (x) => convert(x as number));
}
