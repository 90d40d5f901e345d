/**
 * Which trials of a list have curves: pure functions of a setting that the URL holds.
 *
 * By default the first ones of the list have. The setting holds what differs: "none" for no others than those named, the
 * ID of a trial that has, and with "-" before it the ID of one that has not.
 */

/** @param {string[]} setting @param {string} id @param {boolean} isFirst Whether it is among the first ones. */
export function isSeen(setting, id, isFirst) {
  if (setting.includes(`-${id}`)) return false;
  return setting.includes(id) || (isFirst && !setting.includes("none"));
}

/**
 * The setting after trials were shown or hidden.
 * @param {string[]} setting
 * @param {string[]} ids
 * @param {boolean} isShown
 * @param {(id: string) => boolean} isFirst
 */
export function withEyes(setting, ids, isShown, isFirst) {
  const rest = setting.filter((one) => !ids.includes(one.replace("-", "")));
  return [...rest, ...ids.filter((id) => isSeen(rest, id, isFirst(id)) !== isShown).map((id) => (isShown ? id : `-${id}`))];
}
