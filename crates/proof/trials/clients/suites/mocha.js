// Mocha reporter that writes a line of JSON for each test, and an empty line at the end.
const fs = require('fs');

module.exports = function (runner) {
  const write = (line) => fs.appendFileSync(process.env.QUORATE_REPORT, line + '\n');
  const told = (outcome) => (test, error) => {
    const details = error ? String(error.stack || error) : '';
    write(JSON.stringify({ name: test.fullTitle(), outcome, details }));
  };
  runner.on('pass', told('passed'));
  runner.on('fail', told('failed'));
  runner.on('pending', told('skipped'));
  runner.on('end', () => write(''));
};
