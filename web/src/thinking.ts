// What a model thought aloud, told from its answer.

/**
 * Thoughts and answer of a model that writes `<think>…</think>` first. Without thoughts the first is empty, without an end
 * of them the second; a chat template may have opened the thoughts in the prompt already.
 */
export function splitThinking(text: string): { thoughts: string; answer: string } {
  const end = text.indexOf('</think>');
  const bare = (thoughts: string) =>
    thoughts
      .trim()
      .replace(/^<think>/, '')
      .trim();
  if (end >= 0) return { thoughts: bare(text.slice(0, end)), answer: text.slice(end + '</think>'.length).trimStart() };
  return text.trimStart().startsWith('<think>') ? { thoughts: bare(text), answer: '' } : { thoughts: '', answer: text };
}
