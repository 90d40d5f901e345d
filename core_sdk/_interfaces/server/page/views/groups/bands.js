/** The centre and the band of some values, as the curves of groups have them. Pure. */

/**
 * The numbers among the values; null without any. About a single one there is no band.
 * @param {unknown[]} values
 * @param {string} centre "mean" or "median".
 * @param {string} band "std", "sem", "range" or "none".
 */
export function bandOf(values, centre, band) {
  const numbers = values.filter((value) => typeof value === "number").sort((one, other) => one - other);
  const count = numbers.length;
  if (count === 0) return null;
  const mean = numbers.reduce((sum, value) => sum + value / count, 0);
  const middle = centre === "median" ? (numbers[(count - 1) >> 1] + numbers[count >> 1]) / 2 : mean;
  if (band === "range") return { centre: middle, low: numbers[0], high: numbers[count - 1], count };
  const std = count < 2 || band === "none" ? 0 : Math.sqrt(numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1));
  const width = band === "sem" ? std / Math.sqrt(count) : std;
  return { centre: middle, low: middle - width, high: middle + width, count };
}
