// Values of a method as the records of runtime/bindings/wasm/values.h.
import { makeError } from '../errors.js';
import {
  checkShape,
  checkView,
  DTYPES,
  isGpuTensor,
  type DType,
  type GpuTensor,
  type OutputPlace,
  type Tensor,
  type TensorData,
  type Value,
} from '../tensor.js';

const KIND = { none: 0, tensor: 1, integer: 2, number: 3, flag: 4, text: 5, gpuTensor: 6, place: 7 } as const;
const STORAGE = 0x80; // GPUBufferUsage
const GPU_ALIGNMENT = 256;
const HEADER_BYTES = 16;
const padded = (n: number) => (n + 7) & ~7;

const NAMES = new Map(Object.entries(DTYPES).map(([name, info]) => [info.number, name as DType]));

function isTensor(value: unknown): value is Tensor {
  return typeof value === 'object' && value !== null && 'data' in value;
}

interface Record {
  kind: number;
  dtype: number;
  shape: number[];
  data: Uint8Array;
}

function bytesOf(view: TensorData): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

type HandleOf = (buffer: GPUBuffer) => number;

/** Handle, offset and size of what a buffer has from there on. */
function placeOf(what: string, buffer: GPUBuffer | undefined, offset: number, handleOf: HandleOf): Uint8Array {
  if (!buffer || !(buffer.usage & STORAGE)) {
    throw makeError('invalid_argument', `${what} is in no GPUBuffer with the usage STORAGE`);
  }
  if (!(offset >= 0 && offset % GPU_ALIGNMENT === 0)) {
    throw makeError('invalid_argument', `${what}: its offset ${offset} is no multiple of ${GPU_ALIGNMENT}`);
  }
  return bytesOf(Float64Array.of(handleOf(buffer), offset, Math.max(0, buffer.size - offset)));
}

function placeRecord(place: OutputPlace, index: number, handleOf: HandleOf): Record {
  const record = (data: Uint8Array): Record => ({ kind: KIND.place, dtype: 0, shape: [], data });
  if (place === 'cpu') return record(new Uint8Array(0));
  if (place === 'gpu') return record(new Uint8Array(24));
  const { buffer = place as GPUBuffer, offset = 0 } = Object(place) as { buffer?: GPUBuffer; offset?: number };
  return record(placeOf(`output ${index}`, buffer, offset, handleOf));
}

function toRecord(value: Value | GpuTensor, index: number, handleOf: HandleOf): Record {
  const plain = (kind: number, data: TensorData): Record => ({ kind, dtype: 0, shape: [], data: bytesOf(data) });
  if (typeof value === 'boolean') return plain(KIND.flag, new Uint8Array([value ? 1 : 0]));
  if (typeof value === 'number') {
    if (!Number.isSafeInteger(value)) {
      throw makeError(
        'invalid_argument',
        `${value} is no whole number: pass { float: ${value} } for a floating-point one`,
      );
    }
    return plain(KIND.integer, BigInt64Array.of(BigInt(value)));
  }
  if (isTensor(value) || isGpuTensor(value)) {
    const { dtype, shape } = value;
    const type = DTYPES[dtype];
    if (!type) throw makeError('invalid_argument', `unknown dtype '${String(dtype)}'`);
    checkShape(`input ${index}: shape`, shape);
    if (isGpuTensor(value)) {
      const data = placeOf(`input ${index}`, value.buffer, value.offset ?? 0, handleOf);
      return { kind: KIND.gpuTensor, dtype: type.number, shape, data };
    }
    if (!ArrayBuffer.isView(value.data)) throw makeError('invalid_argument', "a tensor's data must be a typed array");
    checkView(dtype, value.data);
    return { kind: KIND.tensor, dtype: type.number, shape, data: bytesOf(value.data) };
  }
  if (typeof value === 'object' && value !== null && 'float' in value)
    return plain(KIND.number, Float64Array.of(value.float));
  throw makeError('invalid_argument', `a method does not take ${typeof value === 'string' ? 'text' : String(value)}`);
}

const noBuffers = (): never => {
  throw makeError('internal', 'there are no GPU buffers here');
};

/** The inputs and, behind them, the places of outputs. @throws ExecuTorchError invalid_argument for what no method takes. */
export function encodeValues(
  values: readonly (Value | GpuTensor)[],
  places: readonly OutputPlace[] = [],
  handleOf: HandleOf = noBuffers,
): Uint8Array {
  const records = values
    .map((value, i) => toRecord(value, i, handleOf))
    .concat(places.map((place, i) => placeRecord(place, i, handleOf)));
  const sizes = records.map((r) => padded(HEADER_BYTES + 8 * r.shape.length + r.data.length));
  const out = new Uint8Array(sizes.reduce((a, b) => a + b, 0));
  const view = new DataView(out.buffer);
  let at = 0;
  records.forEach((r, i) => {
    [r.kind, r.dtype, r.shape.length, r.data.length].forEach((word, k) => view.setUint32(at + 4 * k, word, true));
    r.shape.forEach((size, k) => view.setBigInt64(at + HEADER_BYTES + 8 * k, BigInt(size), true));
    out.set(r.data, at + HEADER_BYTES + 8 * r.shape.length);
    at += sizes[i] as number;
  });
  return out;
}

/** `bytes` must be a copy of its own: the tensors become views of fresh buffers, not of the module's memory. */
export function decodeValues(
  bytes: Uint8Array,
  bufferOf: (handle: number) => GPUBuffer = noBuffers,
): (Value | GpuTensor)[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values: (Value | GpuTensor)[] = [];
  for (let at = 0; at < bytes.length;) {
    const [kind, dtype, rank, size] = [0, 4, 8, 12].map((k) => view.getUint32(at + k, true)) as [
      number,
      number,
      number,
      number,
    ];
    const start = at + HEADER_BYTES + 8 * rank;
    const data = bytes.slice(start, start + size);
    const shape = Array.from({ length: rank }, (_, k) => Number(view.getBigInt64(at + HEADER_BYTES + 8 * k, true)));
    values.push(
      kind === KIND.gpuTensor ? toGpuTensor(dtype, shape, data, bufferOf) : toValue(kind, dtype, shape, data),
    );
    at += padded(HEADER_BYTES + 8 * rank + size);
  }
  return values;
}

function nameOf(dtype: number): DType {
  const name = NAMES.get(dtype);
  if (!name) throw makeError('internal', `an output of dtype ${dtype}`);
  return name;
}

function toGpuTensor(
  dtype: number,
  shape: number[],
  data: Uint8Array<ArrayBuffer>,
  bufferOf: (handle: number) => GPUBuffer,
): GpuTensor {
  const [handle = 0, offset = 0, size = 0] = new Float64Array(data.buffer);
  return { dtype: nameOf(dtype), shape, buffer: bufferOf(handle), offset, size };
}

function toValue(kind: number, dtype: number, shape: number[], data: Uint8Array<ArrayBuffer>): Value {
  const view = new DataView(data.buffer);
  switch (kind) {
    case KIND.tensor: {
      const name = nameOf(dtype);
      return { dtype: name, shape, data: new DTYPES[name].view(data.buffer, 0, data.length / DTYPES[name].bytes) };
    }
    case KIND.integer:
      return Number(view.getBigInt64(0, true));
    case KIND.number:
      return view.getFloat64(0, true);
    case KIND.flag:
      return data[0] !== 0;
    case KIND.text:
      return new TextDecoder().decode(data);
    default:
      return null;
  }
}
