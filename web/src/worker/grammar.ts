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
const OF_VALUES = words('minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern format');
const OF_PARTS = words(
  'properties patternProperties additionalProperties required minProperties maxProperties propertyNames items prefixItems minItems maxItems',
);
const ALTERNATIVES = words('$ref anyOf oneOf allOf');
/** keyword → the keywords beside which it is passed over */
const IGNORED_BESIDE = new Map([
  ['minLength', words('pattern format')],
  ['maxLength', words('pattern format')],
  ['pattern', words('format')],
  ['propertyNames', words('properties patternProperties')],
]);
const SCHEMAS = words(
  'prefixItems anyOf oneOf allOf items additionalProperties unevaluatedItems unevaluatedProperties propertyNames',
);
const MAPS = words('properties patternProperties $defs definitions');

/**
 * The first keyword of a JSON schema that would be passed over, with its place ("#/properties/a: not"). Only what is a
 * schema is looked at: no enum, const, default or name of a property.
 */
export function unsupportedKeyword(schema: unknown, path = '#'): string | undefined {
  if (typeof schema !== 'object' || schema === null) return undefined;
  if (Array.isArray(schema)) return firstOf(schema, path);
  const fields = schema as Record<string, unknown>;
  const has = (word: string) => word in fields;
  for (const [word, value] of Object.entries(fields)) {
    if (IGNORED.includes(word) && value !== false) return `${path}: ${word}`;
    if (word === 'allOf' && Array.isArray(value) && value.length > 1) return `${path}: allOf of several`;
    const ofValues = OF_VALUES.includes(word);
    const beside = [...(IGNORED_BESIDE.get(word) ?? []), ...(ofValues || OF_PARTS.includes(word) ? ALTERNATIVES : [])];
    const other = beside.find(has);
    if (other) return `${path}: ${word} beside ${other}`;
    if (ofValues && !['type', 'enum', 'const'].some(has)) return `${path}: ${word} without type`;
  }
  for (const word of [...SCHEMAS, ...MAPS].filter(has)) {
    const search = MAPS.includes(word) ? firstOf : unsupportedKeyword;
    const found = search(fields[word], `${path}/${word}`);
    if (found) return found;
  }
  return undefined;
}

/** The same of schemas in a list, or by name. */
function firstOf(schemas: unknown, path: string): string | undefined {
  for (const [name, part] of Object.entries(schemas ?? {})) {
    const found = unsupportedKeyword(part, `${path}/${name}`);
    if (found) return found;
  }
  return undefined;
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

function sourceOf(format: ResponseFormat): { schema: string } | { grammar: string } {
  if (format.type === 'json_object') return { schema: '{"type": "object"}' };
  if (format.type === 'json_schema' && typeof format.schema === 'object') {
    const found = unsupportedKeyword(format.schema);
    if (found) throw invalid(`${found} is not supported`);
    return { schema: JSON.stringify(format.schema) };
  }
  if (format.type === 'grammar' && typeof format.grammar === 'string') return { grammar: format.grammar };
  throw invalid(`${JSON.stringify(format)} is none of json_object, json_schema with a schema, grammar with a grammar`);
}
