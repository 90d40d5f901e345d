/** Tasks that are wanted more often than they can be done. */

/**
 * A function that does the task. While it is under way, any number of calls lead to one more run.
 * @param {() => Promise<void>} task
 * @returns {() => Promise<void>}
 */
export function coalesced(task) {
  let isUnderway = false;
  let isWanted = false;
  return async function run() {
    isWanted = true;
    if (isUnderway) return;
    isUnderway = true;
    try {
      while (isWanted) {
        isWanted = false;
        await task();
      }
    } finally {
      isUnderway = false;
    }
  };
}
