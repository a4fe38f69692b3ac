/** Controls: radio groups and buttons. */
import { element } from "./dom";

/** Call back with the value that the user chose in a radio group. */
export function onChoice(group: string, change: (value: string) => void): void {
  element(`#${group}`, HTMLFieldSetElement).addEventListener("change", (event) => {
    if (event.target instanceof HTMLInputElement) change(event.target.value);
  });
}

/** Show a value as the chosen one of a radio group, without a change event. */
export function checkRadio(name: string, value: string): void {
  for (const input of document.querySelectorAll<HTMLInputElement>(`input[name="${name}"]`)) input.checked = input.value === value;
}

/** Run an action when a button is pressed; the button is disabled until the action ends. */
export function onButton(id: string, action: () => Promise<void>, onerror: (error: unknown) => void): void {
  const button = element(`#${id}`, HTMLButtonElement);
  button.addEventListener("click", () => {
    button.disabled = true;
    action().catch(onerror).finally(() => (button.disabled = false));
  });
}
