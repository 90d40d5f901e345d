/** What the server says of the home as a whole, asked once for all parts of the page. */

import { createContext, useContext, useEffect } from "../preact.js";
import { useAnswer } from "./answers.js";
import { address } from "./api.js";
/** @import { HomeAnswer } from "api" */

const PAUSE_MS = 300;
const Home = createContext(/** @type {HomeAnswer | undefined} */ (undefined));

/** Gives the home to what is inside. */
export const HomeProvider = Home.Provider;

/** Asks for the home: again when a master comes or goes, and often while the records are being read. */
export function useAskedHome() {
  const { value: home, reload } = useAnswer(address(["home"]), { follows: ({ isMaster }) => isMaster });
  useEffect(() => {
    if (!home?.reading) return undefined;
    const timer = setTimeout(reload, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [home]);
  return home;
}

/** Returns whether this server does more than reading. */
export function useCanAct() {
  const home = useContext(Home);
  return home === undefined || home.can_act;
}

/** Returns whether this server changes a row: any, or of several homes what lies in the reader's own. */
export function useMayChange() {
  const home = useContext(Home);
  const canAct = useCanAct();
  return (/** @type {{home?: string}} */ row) => canAct && (home?.own_homes == null || home.own_homes.includes(row.home ?? ""));
}

/** Returns whether this server does this for somebody: a lab's server starts and ends no training. */
export function useDoes() {
  const home = useContext(Home);
  return (/** @type {string} */ name) => !home?.refuses.includes(name);
}
