import { Button, Group } from "@mantine/core";

interface FormActionsProps {
  submit: string;
  sending: boolean;
  onCancel: () => void;
}

/** The last row of a form in a dialogue. */
export function FormActions({ submit, sending, onCancel }: FormActionsProps) {
  return (
    <Group justify="flex-end" gap="xs">
      <Button variant="default" onClick={onCancel}>
        Cancel
      </Button>
      <Button type="submit" loading={sending}>
        {submit}
      </Button>
    </Group>
  );
}
