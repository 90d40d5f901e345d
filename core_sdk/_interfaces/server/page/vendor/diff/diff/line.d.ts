/** Types of the vendored file, from its npm package. */
export { diffLines } from "diff";
