import { bars, gauge } from '../../../examples/print.js';

bars('SIZES', '', [{ name: 'file', value: 1, of: 2 }]);
gauge('filled', 1, 2);
gauge('filled', 2, 2);
