/** Where the ticks of an axis stand: at round numbers. Pure. */

const FEWEST_DECADES = 1.5;
const MOST_TICKS = 7;

/**
 * Round numbers within a range: multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis powers of ten, or these
 * and their multiples where it spans few. The ends of the range, if it has no two such numbers.
 * @param {number} low
 * @param {number} high
 * @param {boolean} isLogarithmic
 * @returns {number[]}
 */
export function roundTicks(low, high, isLogarithmic) {
  if (!(low < high) || !Number.isFinite(high - low)) return [low];
  const ticks = isLogarithmic ? logarithmic(low, high) : linear(low, high);
  return ticks.length > 1 ? ticks : [low, high];
}

function linear(/** @type {number} */ low, /** @type {number} */ high) {
  const least = (high - low) / (MOST_TICKS - 1);
  const power = Math.floor(Math.log10(least));
  const digit = [1, 2, 5, 10].find((one) => one * 10 ** power >= least) ?? 10;
  const step = digit * 10 ** power;
  // The text of a decimal is exact, where its multiple of a power of ten is not.
  const at = (/** @type {number} */ index) => Number(`${index * digit}e${power}`);
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => at(first + index));
}

function logarithmic(/** @type {number} */ low, /** @type {number} */ high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const digits = Math.log10(high / low) < FEWEST_DECADES ? [1, 2, 5] : [1];
  const every = Math.ceil((last - first + 1) / MOST_TICKS);
  const powers = Array.from({ length: last - first + 1 }, (_, index) => first + index).filter((power) => power % every === 0);
  const within = (/** @type {number} */ tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9);
  return powers.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`))).filter(within);
}
