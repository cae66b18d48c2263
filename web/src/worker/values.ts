// Values of a method as the records of runtime/bindings/wasm/values.h.
import { makeError } from '../errors.js';
import { DTYPES, type DType, type Tensor, type TensorData, type Value } from '../tensor.js';

const KIND = { none: 0, tensor: 1, integer: 2, number: 3, flag: 4, text: 5 } as const;
const HEADER_BYTES = 16;
const padded = (n: number) => (n + 7) & ~7;

const NAMES = new Map(Object.entries(DTYPES).map(([name, info]) => [info.number, name as DType]));

function isTensor(value: Value): value is Tensor {
  return typeof value === 'object' && value !== null && 'dtype' in value;
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

function toRecord(value: Value): Record {
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
  if (isTensor(value)) {
    const type = DTYPES[value.dtype];
    if (!type) throw makeError('invalid_argument', `unknown dtype '${String(value.dtype)}'`);
    if (!ArrayBuffer.isView(value.data)) throw makeError('invalid_argument', "a tensor's data must be a typed array");
    return { kind: KIND.tensor, dtype: type.number, shape: value.shape, data: bytesOf(value.data) };
  }
  if (typeof value === 'object' && value !== null && 'float' in value)
    return plain(KIND.number, Float64Array.of(value.float));
  throw makeError('invalid_argument', `a method does not take ${typeof value === 'string' ? 'text' : String(value)}`);
}

/** @throws ExecuTorchError invalid_argument for what no method takes. */
export function encodeValues(values: Value[]): Uint8Array {
  const records = values.map(toRecord);
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
export function decodeValues(bytes: Uint8Array): Value[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values: Value[] = [];
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
    values.push(toValue(kind, dtype, shape, data));
    at += padded(HEADER_BYTES + 8 * rank + size);
  }
  return values;
}

function toValue(kind: number, dtype: number, shape: number[], data: Uint8Array<ArrayBuffer>): Value {
  const view = new DataView(data.buffer);
  switch (kind) {
    case KIND.tensor: {
      const name = NAMES.get(dtype);
      if (!name) throw makeError('internal', `an output of dtype ${dtype}`);
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
