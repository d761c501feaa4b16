// Figures as people read them. What is not known is a dash.

const DASH = "–";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (n) => (n == null ? DASH : Math.abs(n) < 1e6 ? WHOLE.format(n) : SHORT.format(n));

export const rate = (n) => (n == null ? DASH : n > 0 && n < 0.05 ? "<0.1" : n < 10 ? TENTHS.format(n) : count(n));

/** For an axis. */
export const short = (n) => (n < 1e4 ? rate(n) : SHORT.format(n));

export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

const SPANS = [
  [86400, "days"],
  [3600, "h"],
  [60, "min"],
];

/** In the largest unit that it fills twice: 0.4 s, 119 s, 2 min, 36 h, 2 days. */
export function span(seconds) {
  if (seconds == null) return DASH;
  const [size, unit] = SPANS.find(([least]) => seconds >= 2 * least) ?? [1, "s"];
  const value = seconds / size;
  return `${value < 10 && size === 1 ? TENTHS.format(value) : WHOLE.format(Math.floor(value))} ${unit}`;
}

export const ago = (seconds) => (seconds == null ? "never" : seconds < 1 ? "just now" : `${span(seconds)} ago`);

export const millis = (seconds) => (seconds == null ? DASH : `${rate(seconds * 1000)} ms`);

export function bytes(n) {
  if (n == null) return DASH;
  const power = n < 1 ? 0 : Math.min(Math.floor(Math.log2(n) / 10), 5);
  return `${power ? rate(n / 1024 ** power) : count(n)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][power]}`;
}

/** Times come as ISO text or as seconds since 1970. */
export const date = (time) => new Date(typeof time === "number" ? time * 1000 : time);

const valid = (time) => time != null && !Number.isNaN(date(time).getTime());

export const clock = (time) => (valid(time) ? date(time).toLocaleTimeString("en-GB") : DASH);

export function instant(time) {
  if (!valid(time)) return DASH;
  const at = date(time);
  const rest = String(at.getMilliseconds()).padStart(3, "0");
  return `${at.toLocaleDateString("en-CA")} ${at.toLocaleTimeString("en-GB")}.${rest}`;
}

const UNSEEN = /(?![\n\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

function escaped(character) {
  const named = { "\r": "\\r", "\t": "\\t" }[character];
  const code = character.codePointAt(0).toString(16);
  return named ?? (code.length < 3 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`);
}

/**
 * Names and data come from anyone: what would not be seen in them, or would turn or cover what is beside it, is
 * written out. Line ends stay, since they are only where we put them.
 */
export const visible = (words) => words.replace(UNSEEN, escaped).replace(/(\p{M}{4})\p{M}+/gu, "$1…");

/** What a terminal would take for a key that is pressed. */
export const hasControls = (words) => /\p{Cc}/u.test(words);

/** Cut for a drawing; the whole name is in the title. */
export const cut = (name, most) => (name.length <= most ? name : `${name.slice(0, Math.max(most - 1, 1))}…`);

/** Indented, if it is a JSON object or array; numbers and text stay as they came. */
export function pretty(data) {
  if (!/^\s*[[{]/.test(data)) return data;
  try {
    JSON.parse(data);
  } catch {
    return data;
  }
  // Its own tokens with space between them: parsing and writing again would change large numbers.
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  const parts = data.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g);
  return parts
    .map((part, index) => {
      if ("[{".includes(part)) return "]}".includes(parts[index + 1]) ? part : ((depth += 1), part + line());
      if ("]}".includes(part)) return "[{".includes(parts[index - 1]) ? part : ((depth -= 1), line() + part);
      return part === "," ? part + line() : part === ":" ? ": " : part;
    })
    .join("");
}
