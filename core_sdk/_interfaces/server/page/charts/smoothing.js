/** Exponential smoothing, as TensorBoard has it: a running mean over the points, without the bias of its beginning. */

/**
 * @param {(number | null)[]} values NaN and null are passed over and stay as they are.
 * @param {number} weight From 0, which changes nothing, to less than 1.
 * @param {number[]} [counts] How many points each value is the mean of; without them, one. So a curve lags as far behind
 *   its points however many of them lie in a bucket.
 * @returns {(number | null)[]}
 */
export function smoothed(values, weight, counts = []) {
  if (weight <= 0) return values;
  let last = 0;
  let sum = 0;
  return values.map((value, index) => {
    if (value === null || !Number.isFinite(value)) return value;
    const kept = weight ** (counts[index] ?? 1);
    last = last * kept + (1 - kept) * value;
    sum = sum * kept + (1 - kept);
    return last / sum;
  });
}
