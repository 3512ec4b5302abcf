// Checks answers with a validator that is not ours: node validate.mjs MODULES FILE, where each line of FILE is
// {"schema": …, "answers": ["…"]}. Prints every answer that is no JSON or not valid, and exits 1 if there is one.
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';

const [modules, file] = process.argv.slice(2);
const require = createRequire(`${modules}/index.js`);
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
let faults = 0, answers = 0;
for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
  const {schema, answers: texts} = JSON.parse(line);
  const ajv = addFormats(new Ajv({strict: false, logger: false}));
  const validate = ajv.compile(schema);
  for (const text of texts) {
    ++answers;
    let why = '';
    try {
      if (!validate(JSON.parse(text))) why = ajv.errorsText(validate.errors);
    } catch (error) {
      why = error.message;
    }
    if (!why) continue;
    if (++faults <= 10) console.log(`${why}\n  schema ${JSON.stringify(schema)}\n  answer ${text}`);
  }
}
console.log(`${answers} answers, ${faults} not valid`);
process.exit(faults ? 1 : 0);
