export interface Stats {
  model: string;
  device: string;
  tokens: number;
  tokensPerSecond?: number;
  firstTokenMs: number;
}

export interface Message {
  id: string;
  role: 'user' | 'assistant';
  content: string;
  stats?: Stats;
  /** Why an answer ended before the model was done. */
  ended?: 'length' | 'stopped' | 'failed';
}

export interface Conversation {
  id: string;
  title: string;
  /** Milliseconds since 1970, as the others. */
  created: number;
  updated: number;
  /** The system prompt; empty: the model's own. */
  system: string;
  messages: Message[];
}
