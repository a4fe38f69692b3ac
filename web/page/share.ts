/** Share: gives the page's address away: by the system's own sheet where there is one, else by the clipboard. */

/** Share the page's address. @param own - Whether the picture is the user's own. @returns What happened, in a sentence. */
export async function shareLink(own: boolean): Promise<string> {
  const url = location.href;
  const hint = own ? " It does not contain your own picture." : "";
  const sheet = navigator as { share?: (data: ShareData) => Promise<void> };
  try {
    if (sheet.share && matchMedia("(pointer: coarse)").matches) {
      await sheet.share({ title: document.title, url });
      return `Link shared.${hint}`;
    }
    await navigator.clipboard.writeText(url);
    return `Link copied.${hint}`;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return ""; // the user closed the sheet
    return url;
  }
}
