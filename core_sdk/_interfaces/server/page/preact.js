/** Components: Preact, its hooks and the `html` template tag, from one vendored file. */

export {
  createContext,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/htm/standalone.module.js";
