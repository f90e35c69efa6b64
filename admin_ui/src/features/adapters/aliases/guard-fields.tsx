import { Collapse, NumberInput, SimpleGrid, Stack, Switch } from "@mantine/core";

import type { DraftForm } from "./alias-editor";

/** When the alias goes back by itself; a limit left empty doesn't count. */
export function GuardFields({ form }: { form: DraftForm }) {
  const { guarded } = form.values;
  return (
    <Stack gap="sm">
      <Switch
        label="Guard"
        description="Goes back to the revision before by itself when the version with the smallest share does worse than the one with the largest."
        {...form.getInputProps("guarded", { type: "checkbox" })}
      />
      <Collapse expanded={guarded} transitionDuration={0}>
        {guarded && (
          <SimpleGrid cols={{ base: 1, xs: 3 }} spacing="sm">
            <NumberInput
              label="Errors above"
              description="Share that failed"
              suffix=" %"
              decimalScale={3}
              allowNegative={false}
              clampBehavior="none"
              {...form.getInputProps("maxErrorPercent")}
            />
            <NumberInput
              label="First token above"
              description="95 % of them, × the other's"
              suffix=" ×"
              decimalScale={2}
              allowNegative={false}
              clampBehavior="none"
              {...form.getInputProps("maxTtftRatio")}
            />
            <NumberInput
              label="After requests"
              description="Before it is judged"
              thousandSeparator=","
              allowDecimal={false}
              allowNegative={false}
              clampBehavior="none"
              {...form.getInputProps("minRequests")}
            />
          </SimpleGrid>
        )}
      </Collapse>
    </Stack>
  );
}
