// Markdown as page nodes: `marked` takes the text apart, and only what is listed here becomes an element. Text never
// becomes HTML, and an image is shown as a link: showing it would send a request.
import { marked, type MarkedToken, type Token, type Tokens } from 'marked';
import type { ComponentChildren } from 'preact';
import { CopyButton } from '../shell/controls.js';

const SAFE_LINK = /^(https?:|mailto:)/i;

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!SAFE_LINK.test(href)) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

/** The character references that models write; a browser would resolve them in HTML. */
function plain(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => {
    return { amp: '&', lt: '<', gt: '>', quot: '"' }[name] ?? "'";
  });
}

function Code({ text, lang }: { text: string; lang: string | undefined }) {
  return (
    <div class="code">
      <div class="code-bar">
        <span>{lang?.split(/\s/)[0] || 'code'}</span>
        <CopyButton text={() => text} label="Copy the code" />
      </div>
      <pre dir="ltr" tabIndex={0} aria-label={`Code${lang ? `, ${lang}` : ''}`}>
        <code>{text}</code>
      </pre>
    </div>
  );
}

function Table({ header, rows }: Tokens.Table) {
  return (
    <div class="table" tabIndex={0} role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            {header.map((cell) => (
              <th scope="col">{nodes(cell.tokens)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell) => (
                <td>{nodes(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function List({ ordered, start, items }: Tokens.List) {
  const children = items.map((item) => (
    <li class={item.task ? (item.checked ? 'done' : 'to-do') : undefined}>{nodes(item.tokens)}</li>
  ));
  return ordered ? <ol start={Number(start) || 1}>{children}</ol> : <ul>{children}</ul>;
}

// Headings of an answer lie below the page's own.
const HEADINGS = ['h3', 'h4', 'h5', 'h6'] as const;

function node(token: Token): ComponentChildren {
  const t = token as MarkedToken;
  switch (t.type) {
    case 'paragraph':
      return <p>{nodes(t.tokens)}</p>;
    case 'heading': {
      const Heading = HEADINGS[Math.min(t.depth, HEADINGS.length) - 1] ?? 'h6';
      return <Heading>{nodes(t.tokens)}</Heading>;
    }
    case 'list':
      return <List {...t} />;
    case 'code':
      return <Code text={t.text} lang={t.lang} />;
    case 'blockquote':
      return <blockquote>{nodes(t.tokens)}</blockquote>;
    case 'table':
      return <Table {...t} />;
    case 'hr':
      return <hr />;
    case 'br':
      return <br />;
    case 'strong':
      return <strong>{nodes(t.tokens)}</strong>;
    case 'em':
      return <em>{nodes(t.tokens)}</em>;
    case 'del':
      return <del>{nodes(t.tokens)}</del>;
    case 'codespan':
      return <code dir="ltr">{t.text}</code>;
    case 'escape':
      return t.text;
    case 'link':
      return <Link href={t.href}>{nodes(t.tokens)}</Link>;
    case 'image':
      return <Link href={t.href}>{t.text || t.href}</Link>;
    case 'text':
      return 'tokens' in t && t.tokens ? nodes(t.tokens) : plain(t.text);
    case 'space':
    case 'def':
    case 'checkbox': // its list item's bullet
      return null;
    default:
      return token.raw; // HTML among others: as it was written
  }
}

function nodes(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map(node);
}

export function Markdown({ text }: { text: string }) {
  return <>{nodes(marked.lexer(text, { gfm: true, breaks: true }))}</>;
}
