// Text of a given form: which tokens may come next, by the package xgrammar.
import { makeError, type ExecuTorchError } from '../errors.js';
import type { ResponseFormat } from '../types.js';

/** What is used of @mlc-ai/web-xgrammar. */
interface Freed {
  dispose(): void;
}
interface Compiler extends Freed {
  /** indent -1: one line. */
  compileJSONSchema(schema: string, anyWhitespace: boolean, indent: number): Promise<Freed>;
  compileGrammar(grammar: string): Promise<Freed>;
}
interface XMatcher extends Freed {
  acceptToken(id: number): boolean;
  getNextTokenBitmask(): Promise<Int32Array>;
}
export interface XGrammar {
  TokenizerInfo: {
    createTokenizerInfo(
      vocabulary: string[],
      type: string,
      prependSpace: boolean,
      size: number,
      stopIds: number[],
    ): Promise<Freed>;
  };
  GrammarCompiler: { createGrammarCompiler(info: Freed): Promise<Compiler> };
  GrammarMatcher: { createGrammarMatcher(grammar: Freed): Promise<XMatcher> };
}

interface TokenizerJson {
  model: { vocab?: Record<string, number> | [string, number][]; byte_fallback?: boolean };
  added_tokens?: { id: number; content: string; special?: boolean }[];
  [part: string]: unknown;
}

/** The pieces by id as the tokenizer writes them; '' for those that are no text. As python/executorch_webgpu/grammar.py. */
export function vocabularyOf(tokenizerJson: string): { pieces: string[]; type: string; prependSpace: boolean } {
  const tokenizer = JSON.parse(tokenizerJson) as TokenizerJson;
  const { vocab = {} } = tokenizer.model;
  const pieces: string[] = [];
  if (Array.isArray(vocab)) vocab.forEach(([piece], id) => (pieces[id] = piece));
  else for (const [piece, id] of Object.entries(vocab)) pieces[id] = piece;
  for (const { id, content, special } of tokenizer.added_tokens ?? []) pieces[id] = special ? '' : content;
  const { normalizer, pre_tokenizer, decoder } = tokenizer;
  const around = JSON.stringify([normalizer, pre_tokenizer, decoder]);
  const has = (type: string) => around.includes(`"type":"${type}"`);
  const type = has('ByteLevel')
    ? 'byte_level'
    : tokenizer.model.byte_fallback || has('ByteFallback') || has('Metaspace')
      ? 'byte_fallback'
      : 'raw';
  const metaspace = has('Metaspace') && !around.includes('"prepend_scheme":"never"');
  return { pieces: Array.from(pieces, (piece) => piece ?? ''), type, prependSpace: has('Prepend') || metaspace };
}

// Keywords of JSON Schema that xgrammar passes over in silence, where schemas lie in a schema, and rules: as
// python/executorch_webgpu/grammar.py, which says more.
const words = (text: string): readonly string[] => text.split(' ');
const IGNORED = words(
  'multipleOf uniqueItems contains minContains maxContains not if dependentRequired dependentSchemas dependencies $dynamicRef $recursiveRef',
);
const OF_VALUES = words(
  'minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern format minProperties maxProperties propertyNames minItems maxItems',
);
const OF_PARTS = words(
  'properties patternProperties additionalProperties unevaluatedProperties required items prefixItems unevaluatedItems',
);
/** keywords beside which everything else is passed over */
const ALONE = words('$ref const enum anyOf oneOf allOf');
const CONSTRAINTS = ['type', ...OF_VALUES, ...OF_PARTS, ...ALONE];
/** keyword → more of such keywords */
const IGNORED_BESIDE = new Map([
  ['minLength', words('pattern format')],
  ['maxLength', words('pattern format')],
  ['pattern', words('format')],
  ['patternProperties', words('properties')],
  ['propertyNames', words('properties patternProperties additionalProperties unevaluatedProperties')],
  // names may be written twice
  ['minProperties', words('patternProperties additionalProperties unevaluatedProperties propertyNames')],
]);
const SCHEMAS = words(
  'prefixItems anyOf oneOf allOf items additionalProperties unevaluatedItems unevaluatedProperties propertyNames',
);
const MAPS = words('properties patternProperties $defs definitions');

type Fields = Record<string, unknown>;
const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null;
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/**
 * The first keyword of a JSON schema that would be passed over, with its place ("#/properties/a: not"). Only what is a
 * schema is looked at: no enum, const, default or name of a property. `root`: where `$ref` begins.
 */
export function unsupportedKeyword(schema: unknown, path = '#', root = schema): string | undefined {
  if (!isFields(schema)) return undefined;
  if (Array.isArray(schema)) return firstOf(schema, path, root);
  const has = (word: string) => word in schema;
  for (const [word, value] of Object.entries(schema)) {
    if (IGNORED.includes(word) && value !== false) return `${path}: ${word}`;
    if (word === 'allOf' && listOf(value).length > 1) return `${path}: allOf of several`;
    if (word === '$ref' && !(resolved(schema, root) && /^#(?!.*\/(any|one)Of\/)/.test(String(value))))
      return `${path}: $ref to ${String(value)}`;
    const beside = [...(IGNORED_BESIDE.get(word) ?? []), ...(CONSTRAINTS.includes(word) ? ALONE : [])];
    const other = beside.find((o) => has(o) && o !== word && !(word === 'minProperties' && schema[o] === false));
    if (other && !(word === 'type' && agrees(schema))) return `${path}: ${word} beside ${other}`;
    if (/imum$/i.test(word) && typeof value !== 'number') return `${path}: ${word} ${String(value)}`;
    if (/imum$/i.test(word) && [schema.type].flat().includes('number')) return `${path}: ${word} of a number`;
    if (OF_VALUES.includes(word) && !has('type')) return `${path}: ${word} without type`;
    const patterns =
      word === 'pattern' ? [String(value)] : word === 'patternProperties' ? Object.keys(value ?? {}) : [];
    if (patterns.some(asserts)) return `${path}: ${word} with an assertion`;
  }
  const known = Object.keys(schema.properties ?? {});
  const missing = (listOf(schema.required) as string[]).find((name) => !known.includes(name));
  if (missing !== undefined) return `${path}: required ${missing}, which properties lacks`;
  const alternatives = listOf(schema.oneOf);
  if (alternatives.some((a, i) => alternatives.slice(i + 1).some((b) => !apart(a, b, root))))
    return `${path}: oneOf of schemas that may hold at once`;
  for (const word of [...SCHEMAS, ...MAPS].filter(has)) {
    const search = MAPS.includes(word) ? firstOf : unsupportedKeyword;
    const found = search(schema[word], `${path}/${word}`, root);
    if (found) return found;
  }
  return undefined;
}

/** The same of schemas in a list, or by name. */
function firstOf(schemas: unknown, path: string, root: unknown): string | undefined {
  for (const [name, part] of Object.entries(schemas ?? {})) {
    const found = unsupportedKeyword(part, `${path}/${name}`, root);
    if (found) return found;
  }
  return undefined;
}

/** Whether a pattern looks ahead, or has an anchor within a text. Escapes and classes do not count. */
const asserts = (pattern: string): boolean =>
  /\(\?[=!]|[^(|:]\^|\$[^)|]/.test(pattern.replace(/\\.|\[(\\.|[^\]])*\]/g, 'x'));

/** What `const` or `enum` lets through; undefined: there is neither. */
const valuesOf = (schema: Fields): readonly unknown[] | undefined =>
  'const' in schema ? [schema.const] : 'enum' in schema ? listOf(schema.enum) : undefined;

const kindOf = (value: unknown): unknown =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;

/** Whether `type` lets through all that `const` or `enum` does. */
function agrees(schema: Fields): boolean {
  const named = [schema.type].flat();
  const takes = (kind: unknown) => named.includes(kind) || (kind === 'integer' && named.includes('number'));
  return valuesOf(schema)?.map(kindOf).every(takes) ?? false;
}

/**
 * Whether no value is by both schemas, which is what oneOf asks for: xgrammar takes it as anyOf. False where that cannot be
 * told from values, types and properties that both require.
 */
function apart(a: unknown, b: unknown, root: unknown, depth = 8): boolean {
  const one = resolved(a, root);
  const other = resolved(b, root);
  if (!one || !other || depth === 0) return false;
  const values = valuesOf(one);
  const others = valuesOf(other);
  if (values && others) return values.every((value) => !isFields(value) && !others.includes(value));
  const [types, otherTypes] = [typesOf(one), typesOf(other)];
  const shared = otherTypes.filter((type) => types.includes(type));
  if (types.length === 0 || otherTypes.length === 0 || shared.some((type) => type !== 'object')) return false;
  const inBoth = listOf(one.required).filter((name) => listOf(other.required).includes(name)) as string[];
  const property = (schema: Fields, name: string) => (schema.properties as Fields | undefined)?.[name];
  return (
    shared.length === 0 || inBoth.some((name) => apart(property(one, name), property(other, name), root, depth - 1))
  );
}

/** The types that a schema lets through; []: any. */
const typesOf = (schema: Fields): readonly unknown[] =>
  (valuesOf(schema)?.map(kindOf) ?? [schema.type ?? []].flat()).map((kind) => (kind === 'integer' ? 'number' : kind));

/** What a chain of `$ref` within the schema leads to. */
function resolved(schema: unknown, root: unknown): Fields | undefined {
  for (let links = 0; isFields(schema) && links < 8; ++links) {
    if (!('$ref' in schema)) return schema;
    const names = String(schema.$ref).split('/').slice(1);
    schema = names.reduce<unknown>(
      (at, name) => (isFields(at) ? at[name.replaceAll('~1', '/').replaceAll('~0', '~')] : undefined),
      root,
    );
  }
  return undefined;
}

/** A copy in which every schema within is as `change` has it. */
function mapped(schema: Fields, change: (part: unknown) => unknown): Fields {
  const of = { ...schema };
  for (const word of SCHEMAS.filter((word) => word in of)) of[word] = change(of[word]);
  for (const word of MAPS.filter((word) => word in of)) {
    of[word] = Object.fromEntries(Object.entries(of[word] ?? {}).map(([name, part]) => [name, change(part)]));
  }
  return of;
}

/**
 * The schema without what libraries write though it asks for nothing, names of properties that are texts (zod); and with
 * properties of given values and a default, as pydantic's tags of unions are, required: what is written then is by the given
 * schema, too.
 */
export function simplified(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(simplified);
  if (!isFields(schema)) return schema;
  const of = mapped(schema, simplified);
  if (JSON.stringify(of.propertyNames) === '{"type":"string"}') delete of.propertyNames;
  const { required = [], properties } = of;
  if (!Array.isArray(required) || !isFields(properties) || Array.isArray(properties) || 'maxProperties' in of)
    return of;
  const tags = Object.entries(properties)
    .filter(([, part]) => isFields(part) && 'default' in part && ('const' in part || 'enum' in part))
    .map(([name]) => name)
    .filter((name) => !required.includes(name));
  if (tags.length > 0) of.required = [...(required as unknown[]), ...tags];
  return of;
}

const HIGHEST = Number.MAX_SAFE_INTEGER;

/**
 * The schema so that web-xgrammar 0.1.27 follows it: of values that begin alike it takes only those well that come after
 * the shorter ones, and bounds of integers only both together.
 */
export function prepared(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(prepared);
  if (!isFields(schema)) return schema;
  const of = mapped(schema, prepared);
  for (const word of ['anyOf', 'oneOf'].filter((word) => word in of)) {
    const parts = listOf(of[word]).filter(isFields);
    const values = parts.flatMap((part) => valuesOf(part) ?? []);
    const others = listOf(of[word]).filter((part) => !isFields(part) || !valuesOf(part));
    of[word] = values.length > 0 ? [prepared({ enum: values }), ...others] : others;
  }
  const length = (value: unknown) => JSON.stringify(value).length;
  if ('enum' in of) of.enum = [...listOf(of.enum)].sort((a, b) => length(a) - length(b));
  const bound = (word: string, none: number) => (typeof of[word] === 'number' ? of[word] : none);
  if (Object.keys(of).some((word) => /imum$/i.test(word))) {
    const above = Math.floor(bound('exclusiveMinimum', -HIGHEST - 1)) + 1;
    const below = Math.ceil(bound('exclusiveMaximum', HIGHEST + 1)) - 1;
    of.minimum = Math.max(Math.ceil(bound('minimum', -HIGHEST)), above);
    of.maximum = Math.min(Math.floor(bound('maximum', HIGHEST)), below);
    delete of.exclusiveMinimum;
    delete of.exclusiveMaximum;
  }
  return of;
}

/** Follows one text. */
export class Matcher {
  constructor(
    private readonly matcher: XMatcher,
    private readonly grammar: Freed,
  ) {}
  /** A bit for each token that may come. */
  allowed(): Promise<Int32Array> {
    return this.matcher.getNextTokenBitmask();
  }
  accept(id: number): void {
    if (!this.matcher.acceptToken(id)) throw makeError('internal', `token ${id} does not fit the grammar`);
  }
  dispose(): void {
    this.matcher.dispose();
    this.grammar.dispose();
  }
}

/**
 * The package evaluates as a module in a browser, where it leaves itself in a global variable. `instance`: another one
 * for another number.
 */
async function importPackage(url: string, instance: number): Promise<XGrammar> {
  if (url === '') {
    throw makeError(
      'package_missing',
      'responseFormat needs the package @mlc-ai/web-xgrammar: pass its URL, grammarUrl',
    );
  }
  let failure: unknown;
  try {
    const module = (await import(
      /* @vite-ignore */ /* webpackIgnore: true */ `${url}#${instance}`
    )) as Partial<XGrammar>;
    const found = module.GrammarCompiler ? module : (globalThis as { xgrammar?: Partial<XGrammar> }).xgrammar;
    if (found?.GrammarCompiler) return found as XGrammar;
    failure = 'it is another script';
  } catch (error) {
    failure = error;
  }
  throw makeError(
    'package_missing',
    `the package @mlc-ai/web-xgrammar could not be loaded from ${url}: ${String(failure)}`,
  );
}

/** What a tokenizer and a package need once. */
export class Grammars {
  private instance = 1;
  private compiler: Promise<{ package: XGrammar; compiler: Compiler }> | undefined;

  /** `load`: for tests. */
  constructor(
    private readonly url: string,
    private readonly tokenizerJson: string,
    private readonly vocabulary: number,
    private readonly endIds: readonly number[],
    private readonly load: (url: string, instance: number) => Promise<XGrammar> = importPackage,
  ) {}

  /** @throws PackageMissingError; InvalidArgumentError for what is no format, schema or grammar. */
  async matcher(format: ResponseFormat): Promise<Matcher> {
    const source = sourceOf(format);
    this.compiler ??= this.prepare();
    this.compiler.catch(() => (this.compiler = undefined));
    const { package: xgrammar, compiler } = await this.compiler;
    try {
      const grammar = await ('schema' in source
        ? compiler.compileJSONSchema(source.schema, false, -1)
        : compiler.compileGrammar(source.grammar));
      return new Matcher(await xgrammar.GrammarMatcher.createGrammarMatcher(grammar), grammar);
    } catch {
      // the package has told the console why, and its module is not to be used any more
      this.compiler = undefined;
      this.instance++;
      throw invalid('this schema or grammar is not understood; the console has the reason');
    }
  }

  private async prepare(): Promise<{ package: XGrammar; compiler: Compiler }> {
    if (this.endIds.length === 0) throw invalid('the model has no token that ends a text');
    const xgrammar = await this.load(this.url, this.instance);
    const { pieces, type, prependSpace } = vocabularyOf(this.tokenizerJson);
    const info = await xgrammar.TokenizerInfo.createTokenizerInfo(
      pieces.slice(0, this.vocabulary),
      type,
      prependSpace,
      this.vocabulary,
      [...this.endIds],
    );
    return { package: xgrammar, compiler: await xgrammar.GrammarCompiler.createGrammarCompiler(info) };
  }
}

const invalid = (why: string): ExecuTorchError => makeError('invalid_argument', `responseFormat: ${why}`);

/** @throws InvalidArgumentError for an object that lies in itself, and other things that JSON does not know. */
function written(schema: unknown): string {
  try {
    return JSON.stringify(schema);
  } catch (error) {
    throw invalid(String(error));
  }
}

function sourceOf(format: ResponseFormat): { schema: string } | { grammar: string } {
  if (format.type === 'json_object') return { schema: '{"type": "object"}' };
  if (format.type === 'json_schema' && typeof format.schema === 'object') {
    const schema = simplified(JSON.parse(written(format.schema)));
    const found = unsupportedKeyword(schema);
    if (found) throw invalid(`${found} is not supported`);
    return { schema: JSON.stringify(prepared(schema)) };
  }
  if (format.type === 'grammar' && typeof format.grammar === 'string') return { grammar: format.grammar };
  throw invalid(`${written(format)} is none of json_object, json_schema with a schema, grammar with a grammar`);
}
