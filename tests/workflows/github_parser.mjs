// Usage: node --import ./register.mjs github_parser.mjs FILE...   Prints GitHub's own errors of each workflow as JSON.
// With --evaluate: reads {"expression", "context"} from standard input and prints the value as JSON.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { Lexer, Parser, Evaluator, data } from "@actions/expressions";
import { convertWorkflowTemplate, parseWorkflow, NoOperationTraceWriter } from "@actions/workflow-parser";

function toData(value) {
  if (value === null) return new data.Null();
  if (typeof value === "string") return new data.StringData(value);
  if (typeof value === "number") return new data.NumberData(value);
  if (typeof value === "boolean") return new data.BooleanData(value);
  if (Array.isArray(value)) return new data.Array(...value.map(toData));
  return new data.Dictionary(...Object.entries(value).map(([key, entry]) => ({ key, value: toData(entry) })));
}

if (process.argv[2] === "--evaluate") {
  const { expression, context } = JSON.parse(readFileSync(0, "utf8"));
  const contexts = toData(context);
  const tokens = new Lexer(expression).lex().tokens;
  const parsed = new Parser(tokens, Object.keys(context), []).parse();
  const result = new Evaluator(parsed, contexts).evaluate();
  process.stdout.write(JSON.stringify(result, data.replacer));
} else {
  const found = {};
  for (const file of process.argv.slice(2)) {
    const content = readFileSync(file, "utf8");
    const parsed = parseWorkflow({ name: basename(file), content }, new NoOperationTraceWriter());
    const errors = parsed.context.errors.getErrors().map((error) => error.message);
    if (parsed.value) {
      const template = await convertWorkflowTemplate(parsed.context, parsed.value);
      errors.push(...(template.errors ?? []).map((error) => error.Message));
      found[basename(file)] = { errors, jobs: (template.jobs ?? []).map((job) => String(job.id)) };
    } else {
      found[basename(file)] = { errors, jobs: [] };
    }
  }
  process.stdout.write(JSON.stringify(found));
}
