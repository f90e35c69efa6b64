import { Tooltip } from "@mantine/core";

/** A word that needs a sentence: dotted underline, the sentence on hover, on focus and on touch. */
export function Term({ help, children }: { help: string; children: string }) {
  return (
    <Tooltip
      label={help}
      multiline
      maw={320}
      events={{ hover: true, focus: true, touch: true }}
      // Inside the page's content, so that the sentence belongs to a landmark.
      portalProps={{ target: "#content" }}
    >
      <button type="button" className="term">
        {children}
      </button>
    </Tooltip>
  );
}
