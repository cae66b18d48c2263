// The shape of OpenAI's chat completions over a local session, for code that is written against it.
import { promptOf } from './checks.js';
import { makeError } from './errors.js';
import type { Session } from './session.js';
import type { GenerateOptions, GenerateResult, PromptMessage, ResponseFormat } from './types.js';

type ToolCalls = { function: { name: string; arguments: unknown } }[];

interface Message {
  role: string;
  /** May be missing beside `tool_calls`. */
  content?: PromptMessage['content'];
  name?: unknown;
  tool_calls?: unknown;
  tool_call_id?: unknown;
}

export interface ChatCompletionParams {
  messages: Message[];
  /** Anything: there is one model. It comes back in the answers. */
  model?: string;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  seed?: number | null;
  stop?: string | string[] | null;
  n?: number | null;
  response_format?: { type: string; json_schema?: { schema?: object; [other: string]: unknown } } | null;
  [other: string]: unknown;
}
export interface RequestOptions {
  signal?: AbortSignal;
}

export type FinishReason = 'stop' | 'length';
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}
export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  choices: [{ index: 0; message: { role: 'assistant'; content: string }; finish_reason: FinishReason; logprobs: null }];
  usage: Usage;
}
export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  /** Empty in the last one, which has the usage. */
  choices: { index: 0; delta: { role?: 'assistant'; content?: string }; finish_reason: FinishReason | null }[];
  usage?: Usage;
}

/** These change nothing about the answer, or nothing that a local model has. */
const WITHOUT_EFFECT = ['user', 'store', 'metadata', 'service_tier', 'safety_identifier', 'prompt_cache_key'];
/** These, too, where they say what is so anyway. */
const NEUTRAL: Readonly<Record<string, number | boolean>> = {
  frequency_penalty: 0,
  presence_penalty: 0,
  logprobs: false,
  n: 1,
};
const KNOWN = [
  ...['messages', 'model', 'stream', 'stream_options', 'max_tokens', 'max_completion_tokens'],
  ...['temperature', 'top_p', 'seed', 'stop', 'response_format'],
];

/** Templates take the arguments of a call as an object, not as JSON. */
function callsOf(calls: ToolCalls): ToolCalls {
  try {
    return calls.map((call) => {
      const { arguments: given } = call.function;
      const parsed = typeof given === 'string' ? (JSON.parse(given) as unknown) : given;
      return { ...call, function: { ...call.function, arguments: parsed } };
    });
  } catch (cause) {
    throw makeError('invalid_argument', `messages: tool_calls: ${String(cause)}`, { cause });
  }
}

function messageOf(message: Message): PromptMessage {
  const calls = (message as Message | null)?.tool_calls;
  return { ...message, ...(calls ? { tool_calls: callsOf(calls as ToolCalls) } : {}) } as PromptMessage;
}

function formatOf({ type, json_schema }: NonNullable<ChatCompletionParams['response_format']>): ResponseFormat {
  if (type === 'text' || type === 'json_object') return { type };
  if (type === 'json_schema' && json_schema?.schema) return { type, schema: json_schema.schema };
  throw makeError('invalid_argument', `response_format: '${type}' is not supported, or has no schema`);
}

/** What an API leaves out silently, the caller believes to be in force: everything unknown is refused. */
function optionsOf(params: ChatCompletionParams): GenerateOptions {
  const given = Object.keys(params).filter((name) => (params[name] ?? NEUTRAL[name]) !== NEUTRAL[name]);
  const unknown = given.filter((name) => !KNOWN.includes(name) && !WITHOUT_EFFECT.includes(name));
  if (unknown.length) {
    const only = unknown.map((name) => (name in NEUTRAL ? `${name}: only ${NEUTRAL[name]}` : name));
    throw makeError('invalid_argument', `${only.join(', ')}: not supported here`);
  }
  const maxTokens = params.max_completion_tokens ?? params.max_tokens;
  return {
    // OpenAI's default is 1; where neither is given, the most probable token is the better start for a small model
    temperature: params.temperature ?? (params.top_p != null ? 1 : 0),
    ...(maxTokens != null && { maxTokens }),
    ...(params.top_p != null && { topP: params.top_p }),
    ...(params.seed != null && { seed: params.seed }),
    ...(params.stop != null && { stop: params.stop }),
    ...(params.response_format && { responseFormat: formatOf(params.response_format) }),
  };
}

const usageOf = ({ tokenIds, timings }: GenerateResult): Usage => ({
  prompt_tokens: timings.promptTokens,
  completion_tokens: tokenIds.length,
  total_tokens: timings.promptTokens + tokenIds.length,
  prompt_tokens_details: { cached_tokens: timings.reusedTokens },
});

let count = 0;

export class ChatCompletions {
  constructor(private readonly session: Session) {}

  /**
   * `await` it for a completion; with `stream: true`, for an async iterable of chunks.
   * @throws InvalidArgumentError for parameters that have no effect here; CancelledError if the signal fires.
   */
  create(
    params: ChatCompletionParams & { stream: true },
    options?: RequestOptions | null,
  ): Promise<ChatCompletionStream>;
  create(
    params: ChatCompletionParams & { stream?: false | null },
    options?: RequestOptions | null,
  ): Promise<ChatCompletion>;
  create(params: ChatCompletionParams, options?: RequestOptions | null): Promise<ChatCompletion | ChatCompletionStream>;
  async create(
    params: ChatCompletionParams,
    options?: RequestOptions | null,
  ): Promise<ChatCompletion | ChatCompletionStream> {
    const given: unknown = (params as ChatCompletionParams | undefined | null)?.messages;
    if (!Array.isArray(given)) throw makeError('invalid_argument', 'messages: a list is needed');
    const signal = options?.signal;
    const generateOptions = { ...optionsOf(params), ...(signal && { signal }) };
    const messages = promptOf(params.messages.map(messageOf));
    const head = {
      id: `chatcmpl-local-${++count}`,
      created: Math.floor(Date.now() / 1000),
      model: params.model ?? this.session.info.manifest?.name ?? 'local',
    };
    const generation = this.session.generate(messages, generateOptions);
    if (params.stream) {
      return new ChatCompletionStream(head, generation, params.stream_options?.include_usage === true);
    }
    const result = await generation;
    const finish_reason = finishReason(result, signal);
    const message = { role: 'assistant' as const, content: result.text };
    return {
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message, finish_reason, logprobs: null }],
      usage: usageOf(result),
    };
  }
}

function finishReason({ finishReason: reason }: GenerateResult, signal?: AbortSignal): FinishReason {
  if (reason !== 'aborted') return reason;
  throw makeError('cancelled', 'the completion was aborted', { cause: signal?.reason });
}

export class ChatCompletionStream implements AsyncIterable<ChatCompletionChunk> {
  /** As of the openai package: `stream.controller.abort()` ends it. */
  readonly controller: { abort(): void };

  constructor(
    private readonly head: { id: string; created: number; model: string },
    private readonly generation: ReturnType<Session['generate']>,
    private readonly withUsage: boolean,
  ) {
    this.controller = { abort: () => generation.stop() };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChatCompletionChunk, void, undefined> {
    const chunk = (
      delta: { role?: 'assistant'; content?: string },
      finish_reason: FinishReason | null = null,
    ): ChatCompletionChunk => ({
      ...this.head,
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta, finish_reason }],
    });
    yield chunk({ role: 'assistant', content: '' });
    for await (const content of this.generation) yield chunk({ content });
    const result = await this.generation;
    // a stream that was aborted just ends, as there
    if (result.finishReason === 'aborted') return;
    yield chunk({}, result.finishReason);
    if (this.withUsage) yield { ...chunk({}), choices: [], usage: usageOf(result) };
  }
}

/** `openai(session).chat.completions.create({messages, stream: true})`. */
export function openai(session: Session): { chat: { completions: ChatCompletions } } {
  return { chat: { completions: new ChatCompletions(session) } };
}
