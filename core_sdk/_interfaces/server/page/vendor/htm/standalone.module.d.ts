/** Types of the vendored file, from the npm packages that it is made of. */
import type { ComponentChildren, ContainerNode } from "preact";

export { createContext } from "preact";
export * from "preact/hooks";
export { html } from "htm/preact";
export function render(tree: ComponentChildren, parent: ContainerNode): void;
