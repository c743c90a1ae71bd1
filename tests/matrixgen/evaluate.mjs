// Evaluates expressions with GitHub's own parser. In: {"contexts": {...}, "expressions": [...]} on standard input.
// Out: one {"value": ...} or {"error": "..."} for each expression.
import { data, Evaluator, Lexer, Parser } from "@actions/expressions";

let text = "";
for await (const part of process.stdin) text += part;
const input = JSON.parse(text);
const contexts = JSON.parse(JSON.stringify(input.contexts), data.reviver);
const names = Object.keys(input.contexts);
const results = input.expressions.map((expression) => {
  try {
    const tokens = new Lexer(expression).lex().tokens;
    const tree = new Parser(tokens, names, []).parse();
    const value = new Evaluator(tree, contexts).evaluate();
    return { value: JSON.parse(JSON.stringify(value, data.replacer)) };
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
});
process.stdout.write(JSON.stringify(results));
