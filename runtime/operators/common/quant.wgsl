// Decoding of the packing R4 (docs/file-format.md): one vec4<u32> is 4 rows x 8 k (int4) or 4 rows x 4 k (int8).
// int4: byte i of a word holds k + i in its low and k + 4 + i in its high nibble. int8: byte i holds k + i, two's complement.
fn nibblesLow(word: u32) -> vec4f { return vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(15u)); }
fn nibblesHigh(word: u32) -> vec4f { return nibblesLow(word >> 4u); }
fn bytesSigned(word: u32) -> vec4f { return vec4f(unpack4xI8(word)); }
// Four f16 as f32; needs no extension.
fn halves4(pair: vec2u) -> vec4f { return vec4f(unpack2x16float(pair.x), unpack2x16float(pair.y)); }
// One f16 of an array of words: index counted in halves.
fn half1(word: u32, index: u32) -> f32 { return unpack2x16float(word)[index & 1u]; }
