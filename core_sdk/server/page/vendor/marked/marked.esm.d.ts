/** Types of the vendored file, from its npm package. */
export * from "marked";
