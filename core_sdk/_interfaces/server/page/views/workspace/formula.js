/**
 * Formulas of metrics, such as `validation.loss - training.loss` or `exp(loss)`: numbers, names, + - * / ^, parentheses and
 * a few functions, read by a parser of our own. Pure.
 */

import { nameOf } from "../series.js";
/** @import { Curve } from "api" */

/** @typedef {(values: number[]) => number} Value The value of a formula for those of its metrics. */
/**
 * @typedef {object} Formula
 * @property {string} text
 * @property {string[]} names The metrics that it needs, as `group.name`.
 * @property {Value} value
 * @property {{message: string, place: number} | null} problem What is wrong with it, and where.
 */

const TOKEN = /\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)|([A-Za-z_]\w*(?:\.\w+)*)|"([^"]*)"|([-+*/^(),]))/iy;
/** @type {Record<string, (...values: number[]) => number>} */
const FUNCTIONS = { exp: Math.exp, log: Math.log, sqrt: Math.sqrt, abs: Math.abs, min: Math.min, max: Math.max };
const OF_SEVERAL = ["min", "max"];
/** @type {Record<string, (left: number, right: number) => number>} */
const OPERATORS = {
  "+": (left, right) => left + right,
  "-": (left, right) => left - right,
  "*": (left, right) => left * right,
  "/": (left, right) => left / right,
  "^": (left, right) => left ** right,
};
const MOST_CHARACTERS = 500;

/** @typedef {{kind: "number" | "name" | "sign" | "end", text: string, place: number}} Token */

class Wrong extends Error {
  constructor(/** @type {string} */ message, /** @type {number} */ place) {
    super(message);
    this.place = place;
  }
}

/** A formula, also one that is wrong. A name without its group is that of the one group that has it. @param {string} text @param {string[]} metrics @returns {Formula} */
export function readFormula(text, metrics) {
  /** @type {string[]} */
  const names = [];
  const indexOf = (/** @type {Token} */ { text: name, place }) => {
    const found = metrics.includes(name)
      ? [name]
      : metrics.filter((metric) => metric.endsWith(`.${name}`) && metric.indexOf(".") === metric.length - name.length - 1);
    if (found.length === 0) throw new Wrong(`There is no metric ${name}.`, place);
    if (found.length > 1) throw new Wrong(`${name} may be ${found.join(" or ")}: write one of these.`, place);
    if (!names.includes(found[0])) names.push(found[0]);
    return names.indexOf(found[0]);
  };
  try {
    const value = parsed(tokensOf(text), indexOf);
    if (names.length === 0) throw new Wrong("There is no metric in it.", 0);
    return { text, names, value, problem: null };
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    return { text, names: [], value: () => NaN, problem: { message: error.message, place: error.place } };
  }
}

/** @param {string} text @returns {Token[]} */
function tokensOf(text) {
  if (text.length > MOST_CHARACTERS) throw new Wrong(`A formula has at most ${MOST_CHARACTERS} characters.`, MOST_CHARACTERS);
  /** @type {Token[]} */
  const tokens = [];
  const end = text.trimEnd().length;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < end) {
    const start = TOKEN.lastIndex;
    const found = TOKEN.exec(text);
    if (found === null) throw new Wrong("Neither a number, a name nor an operator stands here.", start + text.slice(start).search(/\S/));
    const [all, number, name, quoted, sign] = found;
    const kind = number !== undefined ? "number" : sign !== undefined ? "sign" : "name";
    tokens.push({ kind, text: number ?? sign ?? name ?? quoted, place: start + all.search(/\S/) });
  }
  return [...tokens, { kind: "end", text: "", place: end }];
}

/** @param {Token[]} tokens @param {(name: Token) => number} indexOf @returns {Value} */
function parsed(tokens, indexOf) {
  let next = 0;
  const isSign = (/** @type {string} */ signs) => tokens[next].kind === "sign" && signs.includes(tokens[next].text);
  const expect = (/** @type {string} */ sign) => {
    if (!isSign(sign)) throw new Wrong(`${sign} is missing here.`, tokens[next].place);
    next += 1;
  };
  /** Operators of one strength, from left to right. @param {string} signs @param {() => Value} operand @returns {Value} */
  const chain = (signs, operand) => {
    let left = operand();
    while (isSign(signs)) {
      const [apply, first] = [OPERATORS[tokens[next++].text], left];
      const second = operand();
      left = (values) => apply(first(values), second(values));
    }
    return left;
  };
  /** @type {() => Value} */
  const sum = () => chain("+-", () => chain("*/", signed));
  /** A power is stronger than the sign before it: -2^2 is -4. @returns {Value} */
  const signed = () => {
    if (isSign("-")) {
      next += 1;
      const of = signed();
      return (values) => -of(values);
    }
    const base = atom();
    if (!isSign("^")) return base;
    next += 1;
    const exponent = signed();
    return (values) => OPERATORS["^"](base(values), exponent(values));
  };
  /** @returns {Value} */
  const atom = () => {
    const token = tokens[next];
    if (token.kind === "end") throw new Wrong("A number or a name is missing at the end.", token.place);
    next += 1;
    if (token.kind === "number") return () => Number(token.text);
    if (token.kind === "name") return isSign("(") ? call(token) : valueAt(indexOf(token));
    if (token.text !== "(") throw new Wrong(`A number or a name is missing before ${token.text}.`, token.place);
    const inner = sum();
    expect(")");
    return inner;
  };
  /** @param {Token} token @returns {Value} */
  const call = ({ text: name, place }) => {
    if (!Object.hasOwn(FUNCTIONS, name)) throw new Wrong(`There is no function ${name}: ${Object.keys(FUNCTIONS).join(", ")} are known.`, place);
    /** @type {Value[]} */
    const given = [];
    do {
      next += 1;
      given.push(sum());
    } while (isSign(","));
    expect(")");
    if (given.length > 1 !== OF_SEVERAL.includes(name))
      throw new Wrong(`${name} takes ${OF_SEVERAL.includes(name) ? "several values" : "one value"}.`, place);
    return (values) => FUNCTIONS[name](...given.map((one) => one(values)));
  };
  const value = sum();
  if (tokens[next].kind !== "end") throw new Wrong(`An operator is missing before ${tokens[next].text}.`, tokens[next].place);
  return value;
}

const valueAt = (/** @type {number} */ index) => (/** @type {number[]} */ values) => values[index];

/**
 * The curves of a formula, of each attempt and rank: the points of the metric with the fewest, where the others have a
 * bucket that holds the step. The value is that of the means of these buckets.
 * @param {Curve[]} curves
 * @param {Formula} formula
 * @returns {Curve[]}
 */
export function computedCurves(curves, { text, names, value }) {
  const writers = [...new Set(curves.map(({ attempt, rank }) => `${attempt} ${rank}`))];
  return writers.flatMap((writer) => {
    const own = names.map((name) => curves.find((curve) => nameOf(curve) === name && `${curve.attempt} ${curve.rank}` === writer));
    const given = own.filter((curve) => curve !== undefined);
    if (given.length < names.length) return [];
    const fewest = given.reduce((one, other) => (other.x.length < one.x.length ? other : one));
    /** @type {{index: number, of: number[]}[]} */
    const points = [];
    const at = given.map(() => 0);
    fewest.last_steps.forEach((step, index) => {
      given.forEach(({ last_steps: ends }, which) => {
        while (at[which] < ends.length && ends[at[which]] < step) at[which] += 1;
      });
      if (given.every(({ first_steps: starts }, which) => starts[at[which]] <= step)) points.push({ index, of: [...at] });
    });
    const values = points.map(({ of }) => value(given.map(({ mean }, which) => Number(mean[of[which]] ?? NaN))));
    const column = (/** @type {"first_steps" | "last_steps"} */ name) => points.map(({ index }) => fewest[name][index]);
    const columns = { first_steps: column("first_steps"), last_steps: column("last_steps"), x: points.map(({ index }) => fewest.x[index]) };
    const count = points.map(({ of }) => Math.max(...given.map((curve, which) => curve.count[of[which]])));
    const drawn = { minimum: values, maximum: values, mean: values, last: null };
    const { attempt, rank } = fewest;
    return values.length === 0 ? [] : [{ group: "", name: text, attempt, rank, count, ...columns, ...drawn }];
  });
}
