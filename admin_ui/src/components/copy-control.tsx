import { ActionIcon, CopyButton, Tooltip } from "@mantine/core";

import { CheckIcon, CopyIcon } from "./icons";

export function CopyControl({ value, label }: { value: string; label: string }) {
  return (
    <CopyButton value={value} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : label}>
          <ActionIcon variant="subtle" color={copied ? "wing" : "gray"} size="sm" aria-label={label} onClick={copy}>
            {copied ? <CheckIcon /> : <CopyIcon />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}
