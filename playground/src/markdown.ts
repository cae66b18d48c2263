// The little Markdown that small models write, as DOM nodes: text never becomes HTML.

/** Code between backticks, **strong**, *emphasis*. */
function inline(text: string): Node[] {
  const nodes: Node[] = [];
  let rest = text;
  const pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*/;
  for (let match = pattern.exec(rest); match; match = pattern.exec(rest)) {
    if (match.index > 0) nodes.push(document.createTextNode(rest.slice(0, match.index)));
    const [whole, code, strong, emphasis] = match;
    const element = document.createElement(code !== undefined ? 'code' : strong !== undefined ? 'strong' : 'em');
    element.textContent = code ?? strong ?? emphasis ?? '';
    nodes.push(element);
    rest = rest.slice(match.index + whole.length);
  }
  if (rest) nodes.push(document.createTextNode(rest));
  return nodes;
}

function block(tag: string, lines: string[]): HTMLElement {
  const element = document.createElement(tag);
  lines.forEach((line, i) => {
    if (i > 0) element.append(document.createElement('br'));
    element.append(...inline(line));
  });
  return element;
}

const BULLET = /^\s*(?:[-*•]|\d+[.)])\s+/;

/** Paragraphs, headings, lists and fenced code. A fence that is still open counts as code. */
export function render(text: string): HTMLElement[] {
  const out: HTMLElement[] = [];
  const lines = text.split('\n');
  for (let i = 0; i < lines.length;) {
    const line = lines[i] as string;
    if (line.trim() === '') {
      ++i;
    } else if (line.startsWith('```')) {
      const end = lines.findIndex((l, k) => k > i && l.startsWith('```'));
      const code = document.createElement('code');
      code.textContent = lines.slice(i + 1, end < 0 ? undefined : end).join('\n');
      const pre = document.createElement('pre');
      pre.append(code);
      out.push(pre);
      i = end < 0 ? lines.length : end + 1;
    } else if (BULLET.test(line)) {
      const ordered = /^\s*\d/.test(line);
      const list = document.createElement(ordered ? 'ol' : 'ul');
      if (ordered) list.setAttribute('start', String(parseInt(line.trim(), 10)));
      for (; i < lines.length && BULLET.test(lines[i] as string); ++i) {
        list.append(block('li', [(lines[i] as string).replace(BULLET, '')]));
      }
      out.push(list);
    } else if (/^#{1,6}\s/.test(line)) {
      out.push(block('h3', [line.replace(/^#+\s+/, '')]));
      ++i;
    } else {
      const start = i;
      while (i < lines.length && (lines[i] as string).trim() !== '' && !/^```|^#{1,6}\s/.test(lines[i] as string)) {
        if (i > start && BULLET.test(lines[i] as string)) break;
        ++i;
      }
      out.push(block('p', lines.slice(start, i)));
    }
  }
  return out;
}
