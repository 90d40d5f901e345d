/** Exponential smoothing, as TensorBoard has it: a running mean without the bias of its beginning. */

/**
 * @param {(number | null)[]} values NaN and null are passed over and stay as they are.
 * @param {number} weight From 0, which changes nothing, to less than 1.
 * @returns {(number | null)[]}
 */
export function smoothed(values, weight) {
  if (weight <= 0) return values;
  let last = 0;
  let sum = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    sum = sum * weight + (1 - weight);
    return last / sum;
  });
}
