import { Switch, Text } from "@mantine/core";
import { useId } from "react";

interface SwitchFieldProps {
  label: string;
  description?: string;
  error: string | undefined;
  checked: boolean;
  onChange: (checked: boolean) => void;
}

/** The kit's switch takes its description and its error into its name; here they describe it, as they do other fields. */
export function SwitchField({ label, description, error, checked, onChange }: SwitchFieldProps) {
  const id = useId();
  return (
    <div>
      <Switch
        label={label}
        checked={checked}
        aria-describedby={`${id}-description ${id}-error`}
        aria-invalid={error !== undefined}
        onChange={({ currentTarget }) => {
          onChange(currentTarget.checked);
        }}
      />
      <Text id={`${id}-description`} fz="xs" c="dimmed" mt={4}>
        {description}
      </Text>
      <Text id={`${id}-error`} fz="xs" c="var(--mantine-color-error)">
        {error}
      </Text>
    </div>
  );
}
