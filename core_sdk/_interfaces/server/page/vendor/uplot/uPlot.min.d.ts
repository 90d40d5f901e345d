/** Types of the vendored file, from its npm package. */
export { default } from "uplot";
