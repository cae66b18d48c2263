// Tokenizer and chat template of a model folder.
import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';
import { check, fromFile, parseObject } from '../checks.js';
import { makeError } from '../errors.js';
import type { GenerateOptions, Prompt, PromptMessage } from '../types.js';

interface TokenizerConfig {
  chat_template?: string | { name: string; template: string }[];
  bos_token?: string | { content: string } | null;
  eos_token?: string | { content: string } | null;
}

/** What a chat template gets beside the messages; see GenerateOptions. */
export type TemplateVariables = Pick<GenerateOptions, 'tools' | 'templateOptions'>;

const tokenText = (token: TokenizerConfig['bos_token']) => (typeof token === 'string' ? token : (token?.content ?? ''));

const MOST_ID = 2 ** 31 - 1;

export class TextModel {
  private readonly tokenizer: Tokenizer;
  private readonly config: TokenizerConfig;
  private readonly template: Template | undefined;

  /** The texts of tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja. */
  constructor(tokenizerJson: string, configJson = '{}', templateText?: string) {
    const [file, config] = ['tokenizer.json', 'tokenizer_config.json'];
    const tokenizer = parseObject(file, tokenizerJson);
    this.config = parseObject(config, configJson);
    this.tokenizer = fromFile(file, () => new Tokenizer(tokenizer, this.config));
    this.template = fromFile(templateText === undefined ? config : 'chat_template.jinja', () => {
      const inConfig = this.config.chat_template;
      const text =
        templateText ??
        (Array.isArray(inConfig) ? (inConfig.find((t) => t.name === 'default') ?? inConfig[0])?.template : inConfig);
      return text ? new Template(text) : undefined;
    });
  }

  /** @throws InvalidArgumentError for messages without a chat template and for a prompt without tokens. */
  encode(prompt: Prompt, variables: TemplateVariables = {}): number[] {
    const ids = this.idsOf(prompt, variables);
    if (ids.length === 0) throw makeError('invalid_argument', 'the prompt is empty');
    return ids;
  }

  decode(ids: number[]): string {
    return ids.length
      ? this.tokenizer.decode(ids, { skip_special_tokens: true, clean_up_tokenization_spaces: false })
      : '';
  }

  private idsOf(prompt: Prompt, variables: TemplateVariables): number[] {
    if (typeof prompt === 'string') return this.tokenizer.encode(prompt).ids;
    if (Array.isArray(prompt)) {
      return prompt.length
        ? this.tokenizer.encode(this.render(prompt, variables), { add_special_tokens: false }).ids
        : [];
    }
    const given: unknown = (prompt as { tokenIds?: unknown } | null | undefined)?.tokenIds;
    if (!Array.isArray(given) && !ArrayBuffer.isView(given)) {
      throw makeError('invalid_argument', 'a prompt is a text, a list of messages, or { tokenIds: [...] }');
    }
    const ids = Array.from(given as ArrayLike<number>);
    const wrong = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id > MOST_ID);
    check(wrong < 0, `tokenIds[${wrong}]`, ids[wrong] ?? null, 'token id');
    return ids;
  }

  private render(messages: PromptMessage[], variables: TemplateVariables): string {
    if (!this.template)
      throw makeError('invalid_argument', 'this model has no chat template: pass text instead of messages');
    try {
      return this.template.render({
        ...variables.templateOptions,
        messages,
        tools: variables.tools?.length ? variables.tools : null,
        add_generation_prompt: true,
        bos_token: tokenText(this.config.bos_token),
        eos_token: tokenText(this.config.eos_token),
      });
    } catch (error) {
      // templates refuse what they don't support, such as two user messages in a row
      throw makeError('invalid_argument', `the chat template refused the messages: ${String(error)}`, { cause: error });
    }
  }
}
